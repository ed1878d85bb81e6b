"""Taking over the journal of a partition: nobody else may append, and all that is there is known.

Two may want it at once: a process that was declared dead and goes on, and the owner of a newer
allocation version. Each creates the first chunk of its own log, and only then lists the folder.
Whoever sees a log of a newer version gives up, and ends each older one with a fence at its first
free number. So of two, the newer one sees the older log and fences it, or the older one sees the
newer log; and the store decides whether an append or a fence comes first.

A fence stays for as long as the job: a writer that wakes up years later must still find it.

The number of a collected chunk is free again, and a fence there ends nothing: its writer is further
on. Invariant: as long as a writer is not fenced, a summary in its log lies at or behind the last
number that it has collected, because it writes that summary first. So a chunk ends a log only if a
listing from after its creation has no summary of that log at its number or behind. An owner whose
fence turns out to end nothing lists again, and goes on from the summary.

A log that nobody has ended yet may have lost its last chunks, which leaves no gap: `storage.ends`
says so. What is missing is looked for twice, since somebody may have collected it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import field

from onyx.errors import Fenced, StateError, Unavailable
from onyx.journal.chunk import (
    Chunk,
    Kind,
    Remembered,
    Summary,
    decode_chunk,
    decode_summary,
    encode_chunk,
)
from onyx.journal.index import Index, Indexed
from onyx.journal.names import Listing, PartitionFolder, Place, listing_of
from onyx.storage import ends
from onyx.storage.interface import BlobStore
from onyx.structs import RESTORE

TRIES_MAX = 5
"""How often a folder is listed again, because somebody has collected what was listed."""


class Missing(Exception):
    """A file is not there any more: list the folder again."""


class Found(msgspec.Struct):
    """What a journal holds."""

    end: int = 0
    """Position behind the last segment."""
    cursor: Any = None
    """Cursor of the source; None if it has none, or nothing was read."""
    requests: list[Remembered] = field(default_factory=list)
    """All that are remembered, in the order of their positions."""
    index: Index = field(default_factory=Index)
    """Chunks that may be read."""
    last: int = 0
    """Number of the last chunk of the own log."""
    origin: str = ""
    """The job that began the journal."""
    wall_ms: int = 0
    """When the last chunk was written."""


def claim(store: BlobStore, folder: PartitionFolder, version: int, writer: str) -> Found:
    """Begin the log of this version, end all others, and read what they hold.

    Args:
        writer: the incarnation that takes over.

    Raises:
        Fenced: somebody else has taken the partition over, in this version or a newer one.
        StateError: a file is damaged.
    """
    place = Place(version, 0)
    ends.begin(store, folder.end(version))
    opened = encode_chunk(folder, place, Kind.OPEN, writer)
    if not store.create(folder.chunk(place), opened):
        raise fenced(folder, version)
    found = _patiently(store, folder, version)
    if read_chunk(store, folder, Place(version, found.last + 1)) is not None:
        raise fenced(folder, version)  # meanwhile: a newer owner may have appended already
    return found


def read_ended(store: BlobStore, folder: PartitionFolder) -> Found:
    """End a journal whose job has ended, so that nobody appends to it, and read what it holds.
    Raises StateError: a file is damaged."""
    return _patiently(store, folder, None)


def check_whole(store: BlobStore, folder: PartitionFolder) -> None:
    """Nobody appends any more. Raises StateError: the end of a log is gone."""
    listing = _listing(store, folder)
    try:
        for version in sorted(listing.ends):
            if version in listing.versions or ends.reached(store, folder.end(version)):
                _last(store, folder, listing, version)
    except Missing as missing:
        raise _lost(folder, missing) from missing


def fenced(folder: PartitionFolder, version: int) -> Fenced:
    """The error of a writer that does not own the partition any more."""
    return Fenced(
        f"job {folder.job!r}, task {folder.task!r}: the journal of partition {folder.partition} "
        f"that allocation version {version} wrote belongs to another owner now"
    )


def read_chunk(store: BlobStore, folder: PartitionFolder, at: Place) -> Chunk | None:
    """A chunk; None: it is not there. Raises StateError: it is damaged."""
    data = store.read(folder.chunk(at))
    return None if data is None else decode_chunk(folder, at, data)


def read_summary(store: BlobStore, folder: PartitionFolder, at: Place) -> Summary | None:
    """A summary; None: it is not there. Raises StateError: it is damaged."""
    data = store.read(folder.summary(at))
    return None if data is None else decode_summary(folder, at, data)


def each_once(requests: Iterable[Remembered]) -> list[Remembered]:
    """Requests in order. One without segments that begins where a summary ends is in the summary,
    and may be in a chunk behind it too."""
    found: dict[str, Remembered] = {}
    for each in requests:
        before = found.get(each.id)
        if before is not None and before.first != each.first:
            del found[each.id]  # forgotten, and used again: its place is behind the others
        found[each.id] = each
    return list(found.values())


def _patiently(store: BlobStore, folder: PartitionFolder, own: int | None) -> Found:
    """List and read until what is listed is there: somebody may collect meanwhile. What is missing
    though nothing has changed is lost."""
    before: Listing | None = None
    gone: Exception | None = None
    for _ in range(TRIES_MAX):
        listing = _listing(store, folder)
        try:
            return _read(store, folder, listing, own)
        except Missing as missing:
            gone = missing
            if listing == before:
                raise _lost(folder, missing) from missing
        before = listing
    raise Unavailable(f"the journal in {folder.prefix} keeps changing: {gone} is gone")


def _lost(folder: PartitionFolder, missing: Missing) -> StateError:
    return StateError(
        f"job {folder.job!r}, task {folder.task!r}: journal file {missing} is gone: {RESTORE}"
    )


def _listing(store: BlobStore, folder: PartitionFolder) -> Listing:
    return listing_of(folder, store.list(folder.prefix))


def _read(store: BlobStore, folder: PartitionFolder, listing: Listing, own: int | None) -> Found:
    """Everything behind the newest summary; what is before it is deleted. But not by an owner that
    was overtaken: the fence of its own log may lie before a summary of the newer one."""
    if own is not None and max(listing.versions, default=own) > own:
        raise fenced(folder, own)
    for version in sorted(listing.ends.difference(listing.versions)):
        if ends.reached(store, folder.end(version)):
            raise Missing(folder.chunk(Place(version, 0)))
    found, start = Found(origin=folder.job), Place(-1, -1)
    if listing.summaries:
        start = listing.summaries[-1]
        summary = read_summary(store, folder, start)
        if summary is None:
            raise Missing(folder.summary(start))
        found.end, found.cursor, found.requests = summary.end, summary.cursor, summary.requests
        found.origin, found.wall_ms = summary.origin, summary.wall_ms
    for version in listing.versions:
        if version == own:  # by this very process: opening was tried before
            found.last = _last(store, folder, listing, version)
            end = found.last + 1
        else:  # what a log holds is known only once nobody can append to it
            end = _fence(store, folder, listing, version)
        first = listing.first_of(version)
        if first > 1 and start < (before := Place(version, first - 1)):
            raise _collected(folder, before, before)
        for seq in range(first, end):
            place = Place(version, seq)
            if place <= start:
                store.delete(folder.chunk(place))
            else:
                _add(store, folder, place, found)
    found.requests = each_once(found.requests)
    return found


def _add(store: BlobStore, folder: PartitionFolder, at: Place, found: Found) -> None:
    data = store.read(folder.chunk(at))
    if data is None:
        raise Missing(folder.chunk(at))
    chunk = decode_chunk(folder, at, data)
    if chunk.kind is Kind.FENCE:  # of the own log, since opening began
        raise fenced(folder, at.version)
    found.index.add(Indexed(at, chunk.first, chunk.count, len(data), chunk.wall_ms))
    if chunk.first != found.end:
        raise StateError(
            f"journal file {folder.chunk(at)} begins at position {chunk.first}, but what is there "
            f"of the journal before ends at {found.end}: files before it are gone, or the summary "
            f"that stood for them, {folder.summary(Place(at.version, at.seq - 1))} or a later one; "
            "restore them from a copy, or submit the job again under another name"
        )
    found.end += chunk.count
    found.requests += chunk.requests
    found.cursor = chunk.cursor if chunk.cursor is not None else found.cursor
    if chunk.kind is Kind.DATA:
        found.origin, found.wall_ms = chunk.origin, chunk.wall_ms


def _fence(store: BlobStore, folder: PartitionFolder, listing: Listing, version: int) -> int:
    """End a log, if nobody has; the number of the chunk that ends it."""
    place = Place(version, listing.last_of(version))
    if not listing.collected(place) and _is_fence(store, folder, place):
        return place.seq
    place = Place(version, _last(store, folder, listing, version))
    while True:
        place = Place(version, place.seq + 1)
        fence = encode_chunk(folder, place, Kind.FENCE, "")
        if store.create(folder.chunk(place), fence) or _is_fence(store, folder, place):
            break
    if _listing(store, folder).collected(place):
        raise Missing(folder.chunk(place))
    return place.seq


def _last(store: BlobStore, folder: PartitionFolder, listing: Listing, version: int) -> int:
    """The number of the last chunk of a log that has no fence, which may be collected. Raises
    Missing: the log is not listed up to it."""
    name = folder.end(version)
    reached = ends.reached(store, name) if version in listing.ends else None
    if reached is None:
        raise Missing(name)
    last = listing.last_of(version)
    place = Place(version, reached)
    if reached <= last or listing.summaries[-1:] > [place]:
        return max(last, reached)
    raise _collected(folder, Place(version, last + 1), place)


def _collected(folder: PartitionFolder, at: Place, upto: Place) -> Missing:
    """A chunk is not there, or else a summary that stood for it and others, up to a place or
    behind it."""
    return Missing(
        f"{folder.chunk(at)}, or else the summary {folder.summary(upto)} or a later one,"
    )


def _is_fence(store: BlobStore, folder: PartitionFolder, at: Place) -> bool:
    chunk = read_chunk(store, folder, at)
    if chunk is None:
        raise Missing(folder.chunk(at))
    return chunk.kind is Kind.FENCE
