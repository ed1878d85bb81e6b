"""A journal as one sees it who does not own it: what is kept of it, and the chunks behind that.

Its owner may append, collect and die meanwhile. Whatever chunk or file has a position holds what
stands there for good, so the only question is where it is. What is collected is kept before it is
deleted: so chunks are listed first. What is in neither listing, though something behind it is, is
gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from onyx.journal.depot import Depot, DepotFile, Gone
from onyx.journal.logs import (
    NOWHERE,
    Chunk,
    ChunkKind,
    ChunkPlace,
    JournalLogs,
    PartitionFolder,
    newest_summary,
)
from onyx.storage.fenced_log import Listed, Missing
from onyx.storage.interface import BlobStore

Listing = Mapping[int, Listed]
Block = Chunk | DepotFile
"""What holds segments that follow one another."""


class JournalBounds(NamedTuple):
    """What of a journal is there."""

    first: int
    end: int
    origin: str
    """The job that began it; empty while nothing was appended."""


class JournalView:
    """One partition of a journal. Every method blocks, and raises like the store. Not thread-safe.

    Each raises Unavailable when the owner collects faster than it can be read, and StateError when
    a file is damaged.
    """

    def __init__(self, store: BlobStore, folder: PartitionFolder) -> None:
        """Nothing is read yet."""
        self._folder = folder
        self._logs = JournalLogs(store, folder)
        self._kept = Depot(store, folder)
        self._last: tuple[int, ChunkPlace] | None = None
        """A position, and a chunk behind which it is."""

    def read(self, position: int) -> Block | None:
        """What has a position; None: it is not there yet.

        Raises:
            Gone: it is not kept any more.
        """
        return self._behind_the_last(position) or self._kept.read(position) or self._find(position)

    def bounds(self, over: bool = False) -> JournalBounds:
        """Where it begins and ends now.

        Args:
            over: nobody appends any more, so that what is gone does not come.

        Raises:
            StateError: it is over, and a part of it is gone.
        """
        return self._logs.steadily(self._bounds, owner=over)

    def since(self, wall_ms: int) -> int:
        """The first position that was not written before this time; the end if all were."""

        def look(listing: Listing) -> int:
            places = _places(listing)
            for span in self._kept.list():
                if span.wall_ms >= wall_ms:
                    file = self._kept.open(span)
                    if file is not None:  # else it has just been dropped
                        return file.since(wall_ms)
            found = self._first(places, lambda each: each.wall_ms >= wall_ms)
            return self._bounds(listing).end if found is None else found[1].first

        return self._logs.steadily(look, owner=False)

    def _behind_the_last(self, position: int) -> Chunk | None:
        """The chunk with the next number, as long as the log goes on."""
        while self._last is not None and self._last[0] == position:
            place = ChunkPlace(self._last[1].version, self._last[1].seq + 1)
            chunk = self._logs.find(*place)
            if chunk is None or chunk.kind is not ChunkKind.DATA:
                return None
            self._last = max(position, chunk.end), place
            if chunk.end > position:
                return chunk
        return None

    def _find(self, position: int) -> Block | None:
        def look(listing: Listing) -> Block | None:
            places, collected = _places(listing), newest_summary(listing)
            if self._last is not None and self._last[0] == position:
                last = self._last[1]
                places = [each for each in places if each > last]
                if not places and collected <= last:
                    return None
            found = self._first(places, lambda each: each.end > position)
            if found is not None and found[1].first <= position:
                self._last = found[1].end, found[0]
                return found[1]
            behind = [span.first for span in self._kept.list() if span.first > position]
            file = self._kept.read(position)
            if file is not None:
                return file
            behind += [found[1].first] if found is not None else []
            if not places and collected != NOWHERE:
                end = self._logs.summary(collected).end
                behind += [end] if position < end else []
            if behind:
                raise Gone(
                    f"position {position:,} of partition {self._folder.partition} of the journal "
                    f"of job {self._folder.job}, task {self._folder.task}, is gone: it is kept "
                    f"from {min(behind):,} on"
                )
            if places or collected != NOWHERE:
                self._last = position, [collected, *places][-1]
            return None

        return self._logs.steadily(look, owner=False)

    def check_whole(self) -> None:
        """Nobody appends any more. Raises StateError: the end of the journal is gone."""
        listing = self._logs.list()
        newest = newest_summary(listing)
        try:
            for version, log in listing.items():
                if log.noted and not log.sizes:
                    self._logs.check_begun(version, log)
                elif log.noted:
                    self._logs.end(version, log, replaced=newest.version > version)
        except Missing as missing:
            raise self._logs.lost(missing) from missing

    def _bounds(self, listing: Listing) -> JournalBounds:
        places = _places(listing)
        newest = max((version for version, log in listing.items() if log.sizes), default=None)
        if newest is not None:  # a folder may list less than there is, or nothing
            self._logs.listed_up_to(newest, listing[newest])
        firsts = [span.first for span in self._kept.list()]
        last = next(filter(None, map(self._data, reversed(places))), None)
        if last is not None:
            (_, first) = self._first(places, lambda each: True) or (None, last)
            return JournalBounds(min([*firsts, first.first]), last.end, last.origin)
        collected = newest_summary(listing)
        if collected == NOWHERE:
            return JournalBounds(0, 0, "")
        summary = self._logs.summary(collected)
        return JournalBounds(min(firsts, default=summary.end), summary.end, summary.origin)

    def _first(
        self, places: Sequence[ChunkPlace], wanted: Callable[[Chunk], bool]
    ) -> tuple[ChunkPlace, Chunk] | None:
        """The first chunk of which something is true that is true of all behind it too."""
        found, low, high = None, 0, len(places)
        while low < high:
            at = middle = (low + high) // 2
            chunk = None
            while chunk is None and at < high:  # fences are in between
                chunk = self._data(places[at])
                at += 1
            if chunk is None:
                high = middle
            elif wanted(chunk):
                found, high = (places[at - 1], chunk), middle
            else:
                low = at
        return found

    def _data(self, place: ChunkPlace) -> Chunk | None:
        """A chunk with segments; None: it is a fence."""
        chunk = self._logs.read(*place)
        return chunk if chunk.kind is ChunkKind.DATA else None


def _places(listing: Listing) -> list[ChunkPlace]:
    """Where chunks with segments may be; what is collected is still to be deleted."""
    start = newest_summary(listing)
    found = (
        ChunkPlace(version, seq) for version, log in listing.items() for seq in log.sizes if seq
    )
    return [each for each in found if each > start]
