"""Taking over the journal of a partition: nobody else may append, and all that is there is known.

Two may want it at once: a process that was declared dead and goes on, and the owner of a newer
allocation version. Each creates the first chunk of its own log, and only then lists the folder.
Whoever sees a log of a newer version gives up, and ends each older one (`storage.fenced_log`). So
of two, the newer one sees the older log and fences it, or the older one sees the newer log; and the
store decides whether an append or a fence comes first.

A summary stands for all chunks up to its place, in older logs too. An owner whose fence turns out
to end nothing lists again, and goes on from the summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import field

from onyx.errors import StateError
from onyx.journal.chunk import Kind, Remembered, encode_chunk
from onyx.journal.index import Index, Indexed
from onyx.journal.logs import NOWHERE, JournalLogs, newest_summary
from onyx.journal.names import PartitionFolder, Place
from onyx.storage.fenced_log import Listed
from onyx.storage.interface import BlobStore


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


def claim(logs: JournalLogs, version: int, writer: str) -> Found:
    """Begin the log of this version, end all others, and read what they hold.

    Args:
        writer: the incarnation that takes over.

    Raises:
        Fenced: somebody else has taken the partition over, in this version or a newer one.
        StateError: a file is damaged.
    """
    if not logs.begin(version, encode_chunk(logs.folder, Place(version, 0), Kind.OPEN, writer)):
        raise logs.fenced(version)
    found = logs.steadily(lambda listed: _read(logs, listed, version))
    if logs.find(version, found.last + 1) is not None:
        raise logs.fenced(version)  # meanwhile: a newer owner may have appended already
    return found


def read_ended(store: BlobStore, folder: PartitionFolder) -> Found:
    """End a journal whose job has ended, so that nobody appends to it, and read what it holds.
    Raises StateError: a file is damaged."""
    logs = JournalLogs(store, folder)
    return logs.steadily(lambda listed: _read(logs, listed, None))


def each_once(requests: Iterable[Remembered]) -> list[Remembered]:
    """Requests in the order of their positions, whatever the order of their chunks: one without
    segments comes later where a job goes on in the journal of another. It may be in a summary and
    in a chunk behind that too. Of an id that was forgotten and used again, the later one."""
    found = {each.id: each for each in requests}
    return sorted(found.values(), key=lambda each: (each.first, each.count))


def _read(logs: JournalLogs, listed: Mapping[int, Listed], own: int | None) -> Found:
    """Everything behind the newest summary; what is before it is deleted. But not by an owner that
    was overtaken: the fence of its own log may lie before a summary of the newer one."""
    begun = {version: log for version, log in listed.items() if log.sizes}
    if own is not None and max(begun, default=own) > own:
        raise logs.fenced(own)
    for version in listed.keys() - begun:
        logs.check_begun(version, listed[version])
    found, start = Found(origin=logs.folder.job), newest_summary(listed)
    if start != NOWHERE:
        summary = logs.summary(start)
        found.end, found.cursor, found.requests = summary.end, summary.cursor, summary.requests
        found.origin, found.wall_ms = summary.origin, summary.wall_ms
    for version, log in begun.items():
        if version == own:  # by this very process: opening was tried before
            end = logs.end(version, log)
            if end in log.sizes:
                raise logs.fenced(version)
            found.last = end - 1
        else:  # what a log holds is known only once nobody can append to it
            end = logs.fence(version, log, replaced=start.version > version)
        if log.first > 1 and start < Place(version, log.first - 1):
            raise logs.unlisted(version, log.first - 1, log.first - 1)
        for seq in range(log.first, end):
            if Place(version, seq) <= start:
                logs.store.delete(logs.folder.chunk(version, seq))
            else:
                _add(logs, Place(version, seq), found)
    found.requests = each_once(found.requests)
    return found


def _add(logs: JournalLogs, at: Place, found: Found) -> None:
    chunk, folder = logs.read(*at), logs.folder
    found.index.add(Indexed(at, chunk.first, chunk.count, chunk.size_bytes, chunk.wall_ms))
    if chunk.first != found.end:
        raise StateError(
            f"journal file {folder.chunk(*at)} begins at position {chunk.first}, but what is there "
            f"of the journal before ends at {found.end}: files before it are gone, or the summary "
            f"that stood for them, {folder.mark(at.version, at.seq - 1)} or a later one; "
            "restore them from a copy, or submit the job again under another name"
        )
    found.end += chunk.count
    found.requests += chunk.requests
    found.cursor = chunk.cursor if chunk.cursor is not None else found.cursor
    if chunk.kind is Kind.DATA:
        found.origin, found.wall_ms = chunk.origin, chunk.wall_ms
