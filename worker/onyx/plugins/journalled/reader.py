"""Readers of a journalled partition: the one that goes on at its end, and those that read again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import pyarrow as pa

from onyx.errors import OnyxError
from onyx.flow.batch import U64, Segments, as_dicts, as_given, part_of
from onyx.flow.segment import Segment
from onyx.journal.journal import Journal
from onyx.ledger.returns import Parts
from onyx.plugins.journalled.partition import JournalledPartition
from onyx.plugins.protocol import ColumnsReader, Cursor
from onyx.plugins.segment_runs import DecodedRuns
from onyx.telemetry.catalog import JOURNAL_BYTES
from onyx.telemetry.interface import TaskMetrics

Next = Callable[[int], "tuple[int, list[Segments]] | None"]
"""The chunk that has a position, and where it begins; None: there is none yet."""


class Chunked(Protocol):
    """What has positions in chunks."""

    def first_of(self, position: int) -> int:
        """The first position of the chunk that has this one; the position itself if none has."""
        ...


class JournalReader(ColumnsReader):
    """Reads chunks of a journal from a position on."""

    def __init__(
        self,
        journal: Chunked,
        position: int,
        following: Next,
        end: Callable[[], int],
        state: dict[str, str],
    ) -> None:
        """
        Args:
            end: behind the last position that may be read.
            state: goes into every cursor.
        """
        self._journal = journal
        self._end = end
        self._position = position
        self._next = following
        self._state = state
        self._held = DecodedRuns()

    def read(self, segments_max: int) -> list[Segment]:
        """Segments as dicts, as far as they are there. When a chunk cannot be read now, those
        before it come first and the next call raises, so that positions do not move."""
        found: list[Segment] = []
        while len(found) < segments_max and self._fill(bool(found)):
            found += as_dicts(self._take(segments_max - len(found)))
        return found

    def read_columns(self, segments_max: int) -> pa.RecordBatch | list[Segment]:
        """The next segments of one kind."""
        return as_given(self._take(segments_max)) if self._fill() else []

    def ready(self) -> int:
        """Segments that wait to be read, about."""
        return self._end() - self._position

    def exhausted(self) -> bool:
        """Never: somebody may always append."""
        return False

    def cursor(self, position: int) -> Cursor:
        """The beginning of the chunk that has the position."""
        return Cursor(self._journal.first_of(position), self._state)

    def close(self) -> None:
        """Nothing is open."""

    def _take(self, segments_max: int) -> Segments:
        taken = self._held.take(segments_max)
        self._position += len(taken)
        return taken

    def _fill(self, any_taken: bool = False) -> bool:
        """Whether there is something to take; an error waits until nothing is taken before it."""
        if len(self._held):
            return True
        try:
            found = self._next(self._position)
        except OnyxError:
            if any_taken:
                return False
            raise
        if found is None:
            return False
        first, runs = found
        skipped = self._position - first
        for run in runs:
            kept = part_of(run, min(skipped, len(run)), len(run))
            skipped = max(0, skipped - len(run))
            self._held.append(kept)
        return bool(len(self._held))


class OwnerReader(JournalReader):
    """The reader that goes on at the end of the journal, and tells its feed what is complete."""

    def __init__(
        self,
        partition: JournalledPartition,
        position: int,
        state: dict[str, str],
        closed: Callable[[], None],
        metrics: TaskMetrics,
        size_bytes: Callable[[], int],
    ) -> None:
        """
        Args:
            closed: called when the partition is given away.
            size_bytes: of the journals of all partitions of the peer.
        """
        end = partial(getattr, partition, "end")
        super().__init__(partition.journal, position, partition.next_runs, end, state)
        self._partition = partition
        self._closed = closed
        self._metrics = metrics
        self._bytes = size_bytes

    def obstacle(self) -> str:
        """Why nothing new comes; empty if that is not known. Safe from any thread."""
        return self._partition.obstacle

    def exhausted(self) -> bool:
        """Whether the source has ended, and everything was read."""
        return self._partition.exhausted and self._position >= self._partition.end

    def cursor(self, position: int) -> Cursor:
        """The beginning of the chunk that has the position: the frontier (`Reader.cursor`). Under
        at-most-once positions may be given away that nothing has: then what was read last."""
        self._passed(position)
        return super().cursor(min(position, self._position))

    def _passed(self, frontier: int) -> None:
        """The feed hears what is processed, by owners of before too."""
        feed, metrics = self._partition.feed, self._metrics
        feed.passed(frontier)
        feed.report(metrics)
        metrics.set(JOURNAL_BYTES, self._bytes())

    def acked(self, positions: U64) -> None:
        """The trees of these positions, which rise, are complete (`protocol.AckedReader`)."""
        self._partition.feed.acked(positions)

    def returned(self, position: int, parts: Parts) -> None:
        """What functions give back for the tree of a position, before it is complete."""
        self._partition.feed.returned(position, parts)

    def given_up(self, positions: U64) -> None:
        """These positions have failed, and are not read again."""
        self._partition.feed.given_up(positions)

    def settled(self, position: int) -> int:
        """How far the frontier may go, of a position that it could go to."""
        return self._partition.feed.settled(position)

    def sent_again(self, positions: U64) -> None:
        """These positions are sent again."""
        self._partition.feed.sent_again(positions)

    def awaited(self, position: int) -> bool:
        """Whether somebody waits for something all of which is before this position, once."""
        return self._partition.feed.awaited(position)

    def drain(self) -> int | None:
        """Take nothing more from the source (`protocol.DrainingReader`)."""
        return self._partition.end if self._partition.drain() else None

    def close(self) -> None:
        """Give the partition away."""
        self._closed()


def replaying(journal: Journal, position: int, state: dict[str, str]) -> JournalReader:
    """A reader of what is in the journal already."""

    end = journal.end

    def following(at: int) -> tuple[int, list[Segments]] | None:
        return journal.read(at) if at < end else None

    return JournalReader(journal, position, following, lambda: end, state)
