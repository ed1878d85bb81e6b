"""One open partition of a source: where it is read, what is in flight, and what is reserved.

Nothing is held in memory for a retry: positions are stable, so what was lost is read again from the
source under a new attempt, and only what is still incomplete of it is sent. A source that cannot
give again what it has given before ends the job. One that cannot do it now is waited for.

Invariant: a position is sent only after the store says that it is reserved. So whoever takes over
knows how far anybody may have read, and a job that drains ends exactly there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import ClassVar

import msgspec
import numpy as np
from msgspec import field

from onyx.base.runs import Numbers, array_of, taken
from onyx.base.seams import Clock
from onyx.errors import Unavailable, UserError
from onyx.flow.batch import Batch, Mixed, Read, Segments, of_runs, pieces_of, runs_of, take_of_read
from onyx.ledger.lineage import POSITIONS_MAX, ids_of, positions_of, run_of_ids, source_number
from onyx.ledger.pending import (
    GivingUpPositions,
    OrderedPositions,
    PendingPositions,
    Range,
    ReturningPositions,
)
from onyx.ledger.read_times import ReadTimes
from onyx.ledger.retry_delay import RetryDelay
from onyx.ledger.returns import Parts
from onyx.model.job import CatalogEntry
from onyx.model.plugins import returns_failures
from onyx.plugins.protocol import AckedReader, Cursor, DrainingReader, Input
from onyx.program.plugin_forms import SegmentsReader, plugin_reader, segments_reader
from onyx.task.batching import BatchSizing, FilledReader
from onyx.task.source.frontier import Frontier, FrontierStore

PENDING_FACTOR = 8
"""Positions between a partition's frontier and its newest, as a multiple of `maxPending`: one slow
tree does not stop the others at once."""

RESERVE_POSITIONS_MIN = 100

RESERVE_POSITIONS_AT_MOST_ONCE_MAX = 50_000
"""Positions reserved at a time: as many as were read in the last period between two checkpoints.
After a crash, at-most-once loses what was reserved and not read, hence its limit; a job that is
being drained reads that much more, as if it had been drained a little later."""

LULL_SAVED_MS = 60_000
"""Event time that is saved anew in a lull: each time is a write to ZooKeeper."""

DRAIN_IDLE_S = 2.0
"""A source that has given nothing for so long gives all again that it had ever given."""

SKIPPED_AT_ONCE = 10_000


class Partition(msgspec.Struct):
    """A partition of a job whose segments are accounted for."""

    number: int
    name: str
    sizing: BatchSizing
    store: FrontierStore
    reader: SegmentsReader
    pending: PendingPositions
    next_position: int
    source: int
    """`source_number` of the partition."""
    columns: bool = False
    """Whether it is read as columns, if the plugin can."""
    sent_before: int = 0
    """Earlier owners have sent nothing from this position on."""
    to_retry: deque[tuple[int, int]] = field(default_factory=deque)
    """Ranges [first, last) to be read again."""
    replays: int = 0
    """The first so many of them are what was in flight when the job was re-allocated."""
    waiting: AckedReader | None = None
    """The reader, if its source wants to know what is processed."""
    end: int | None = None
    """Where a partition that is drained ends; nothing is read from there on."""
    hold: int | None = None
    """While the job is paused: nothing is read from there on."""
    idle_since_s: float | None = None
    """Since when nothing has come before `stop`."""
    reserve_max: int | None = None
    """Most positions to reserve ahead, under a limit of the rate."""
    come_to_ms: int | None = None
    """Where event time has come, if it follows the clock in a lull."""
    newest_ms: int | None = None
    """The greatest event time that was read, by earlier owners too."""
    given_up: int = 0
    """Segments for `take_given_up`."""
    read_times: ReadTimes = field(default_factory=ReadTimes)
    """When what is in flight was read."""
    counted_from: int = 0
    """Where this period between two checkpoints began."""
    pace: int = 0
    """Positions read in the last whole period between two checkpoints."""

    certain: ClassVar[bool] = True
    """Whether everything before the stored frontier has been read, and so must still be there."""

    @property
    def position(self) -> int:
        """Everything before it is processed."""
        return self.pending.frontier

    @property
    def stop(self) -> int | None:
        """Where reading ends, for good or as long as the job is paused."""
        return self.hold if self.end is None else self.end

    @property
    def ended(self) -> bool:
        """Whether the partition gives nothing new any more."""
        return self.reader.exhausted() or self.next_position == self.end

    def finished_reading(self) -> bool:
        """Nothing is left to read, neither new nor again."""
        return self.ended and not self.to_retry

    def complete(self) -> bool:
        """Everything read, and every tree of it processed, as the source is to know it."""
        self._tell_given_up()  # a source that hears of it may not have ended
        if not self.finished_reading() or self.pending.in_flight:
            return False
        position = self.pending.frontier
        return self.waiting is None or self.waiting.settled(position) == position

    def drain(self) -> None:
        """Read no further than somebody may have read already, or the source has taken."""
        if self.end is not None:
            return
        reader = plugin_reader(self.reader)
        taken = reader.drain() if isinstance(reader, DrainingReader) else 0
        if taken is not None:
            self.end = max(self.next_position, self.sent_before, taken)
        if isinstance(self.reader, FilledReader):
            self.reader.hurry()

    def pause(self, paused: bool) -> None:
        """Read no further than somebody may have read already, until the job goes on."""
        if not paused:
            self.hold = self.idle_since_s = None
        elif self.hold is None:
            self.hold = max(self.next_position, self.sent_before)

    def come_to_rest(self) -> bool:
        """Save the frontier once all that may have been read is complete; whether it is saved."""
        waits = self.to_retry or not (self.ended or self.next_position == self.stop)
        if waits or self.frontier(reserve=0).position != self.next_position:
            return False
        return self.save()

    def latencies(self, roots: Numbers, now_s: float) -> Iterator[tuple[float, int, int]]:
        """For trees that become complete, before `completed` hears of them: how long ago they were
        read, each with how many of them and the position of the first."""
        if self.pending.any_retried:  # else each comes once
            roots = self.pending.incomplete(roots)
        done = 0
        for read_s, count in self.read_times.of(roots):
            yield now_s - read_s, count, int(roots[done]) & (POSITIONS_MAX - 1)
            done += count

    def oldest_open_s(self, now_s: float) -> float | None:
        """Since when the oldest segment in flight was read; None if there is none. From any
        thread."""
        if not self.pending.in_flight:
            return None
        return self.read_times.oldest_s(self.pending.frontier, now_s)

    def completed(self, roots: Numbers) -> int:
        """Trees are complete, of whichever attempt. Returns how many were not before."""
        if self.waiting is None:
            return self.pending.complete(roots)
        if isinstance(self.pending, OrderedPositions):
            # What is complete may be sent again, unless the frontier has passed it.
            first, count = self.pending.frontier, self.pending.complete(roots)
            positions = np.arange(first, self.pending.frontier, dtype=np.uint64)
        else:
            positions = positions_of(self.pending.incomplete(roots))
            count = self.pending.complete(roots)
        self.waiting.acked(positions)
        return count

    def returned(self, root: Numbers, parts: Parts) -> None:
        """Functions give something back for a tree. What a second attempt of it gives is the same
        again."""
        if self.waiting is not None and len(self.pending.incomplete(root)):
            self.waiting.returned(int(positions_of(array_of(root))[0]), parts)

    def take_given_up(self) -> int:
        """Segments that have failed and count as processed, since the last time."""
        self._tell_given_up()
        count, self.given_up = self.given_up, 0
        return count

    def _tell_given_up(self) -> None:
        """Before the frontier passes them: the source takes what that passes for processed."""
        positions = self.pending.take_given_up()
        if len(positions):
            self.given_up += len(positions)
            if self.waiting is not None:
                self.waiting.given_up(positions.astype(np.uint64))

    def awaited(self) -> bool:
        """Whether somebody waits for the tree of what was sent, each time once."""
        if self.waiting is None or self.to_retry:
            return False  # a flush is to go behind all that is read again
        return self.waiting.awaited(self.next_position)

    # --- reading --------------------------------------------------------------------------------

    def wanted(self, in_flight: int) -> int:
        """How many segments to read now, as far as those in flight leave room.

        Args:
            in_flight: segments of all partitions of the peer.
        """
        most, pending_max = self.sizing.segments_max, self.sizing.pending_max
        self.pending.widen(PENDING_FACTOR * pending_max)
        if self.pending.waits:
            return 0
        free = pending_max - in_flight
        if free < min(most, pending_max // 4):
            # Many small batches would cost more than waiting for room for a larger one.
            return 0
        return min(most, free, self.pending.room)

    def emit(self, read: Read, now_s: float) -> list[Batch]:
        """Count segments that were read, as the roots of new trees; a batch of each form."""
        first = self._advance(len(read))
        roots = self.pending.emit(len(read), now_s)
        self.read_times.read(self.next_position, now_s, self.pending.frontier)
        return _batches(read, roots, run_of_ids(self.source, first, self.next_position))

    def _advance(self, count: int) -> int:
        first = self.next_position
        self.next_position += count
        self.idle_since_s = None
        return first

    def has_come_to(self, time_ms: int | None, by_clock: bool) -> None:
        """Event time has come to this, by what was read or by the clock alone."""
        known_ms = self.come_to_ms
        if known_ms is not None and time_ms is not None and by_clock:
            time_ms = time_ms if time_ms - known_ms >= LULL_SAVED_MS else known_ms
        self.come_to_ms = time_ms

    def has_read(self, newest_ms: int | None) -> None:
        """The greatest event time that this owner has read."""
        if newest_ms is not None and (self.newest_ms is None or newest_ms > self.newest_ms):
            self.newest_ms = newest_ms

    def give_up_if_idle(self, now_s: float) -> None:
        """A partition that drains, or is paused, was reserved further than it was ever read: it has
        given nothing for a while, so it stops here."""
        if self.stop is None:
            return
        if self.idle_since_s is None:
            self.idle_since_s = now_s
        elif now_s - self.idle_since_s >= DRAIN_IDLE_S:
            self.hold = self.next_position
            self.end = None if self.end is None else self.next_position

    @property
    def again(self) -> int:
        """How many of the next positions an earlier owner may have sent."""
        return max(0, self.sent_before - self.next_position)

    def change(self, entry: CatalogEntry) -> None:
        """Follow other values of the entry."""
        self.pending.change_timeout(entry.pending_timeout / 1000)
        if isinstance(self.reader, FilledReader):
            self.reader.change_timeout(entry.batch_timeout / 1000)

    def replay_pending(self) -> None:
        """After a re-allocation: whatever was in flight is lost, read it again at once."""
        self.to_retry.clear()
        self.to_retry.extend(self.pending.replay_all())
        self.replays = len(self.to_retry)

    def read_again(self, due: list[Range]) -> None:
        """Read again what has become due. With ordered positions that is all there is, up to the
        newest, and what was left of earlier ranges is among it."""
        if due and isinstance(self.pending, OrderedPositions):
            self.to_retry.clear()
        self.to_retry.extend(due)

    def retry(self, plugin: Input, clock: Clock) -> list[Batch]:
        """Read from the first range again what is still incomplete, a batch of each form; none if
        all of it is complete."""
        first, last = self.to_retry[0]
        # What has completed since need not be read again, and readers may have forgotten it.
        first = max(first, self.pending.frontier)
        middle = min(last, first + self.sizing.segments_max)
        read: Read = []
        if self.pending.any_due(first, middle):
            read = self._reread(plugin, first, middle)
            middle = first + len(read)
        self.to_retry.popleft()  # not before it was read, which may be impossible now
        if middle < last:
            self.to_retry.appendleft((middle, last))
        elif self.replays:
            self.replays -= 1
        roots = self.pending.retry(first, middle, clock.monotonic_s())
        if not len(roots):
            return []
        positions = positions_of(roots)
        if self.waiting is not None:
            self.waiting.sent_again(positions)
        chosen = positions.astype(np.intp) - first
        return _batches(take_of_read(read, chosen), roots, ids_of(self.source, roots))

    def _reread(self, plugin: Input, first: int, last: int) -> Read:
        cursor = self.reader.cursor(self.pending.frontier)
        reader = open_at(plugin, self.name, cursor, first, columns=self.columns)
        try:
            return read_again(reader, self.name, first, last)
        finally:
            reader.close()

    # --- frontier and reservation ---------------------------------------------------------------

    def checkpoint(self) -> None:
        """A period between two checkpoints is over: count its pace, and begin to save."""
        self.pace = self.next_position - self.counted_from
        self.counted_from = self.next_position
        self.save()

    def save(self) -> bool:
        """Begin to save what has changed; True when all of it is stored."""
        return self.store.save(self.frontier(self.reserve() if self._lately else 0))

    @property
    def _lately(self) -> int:
        """Positions read in this period or in the last one."""
        return max(self.pace, self.next_position - self.counted_from)

    def reserve(self) -> int:
        """How many positions to reserve before they are read."""
        if self.finished_reading():
            return 0
        if self.stop is not None:
            return self.stop - self.next_position
        wanted = max(self._lately, RESERVE_POSITIONS_MIN, self.sizing.segments_max)
        return wanted if self.reserve_max is None else min(wanted, self.reserve_max)

    def frontier(self, reserve: int) -> Frontier:
        """Where the next owner begins, with so many positions reserved from the next one on."""
        self._tell_given_up()
        position = self.pending.frontier
        if self.waiting is not None:
            position = self.waiting.settled(position)
        cursor = self.reader.cursor(position)
        return Frontier(
            position,
            cursor,
            self.complete(),
            self._reserved(reserve),
            self.come_to_ms,
            self.newest_ms,
            self.next_position,
        )

    def _reserved(self, reserve: int) -> int:
        return max(self.next_position + reserve, self.sent_before)


class UntrackedPartition(Partition):
    """Under at-most-once: what is reserved is given away, and never read again."""

    certain = False

    @property
    def position(self) -> int:
        """Everything before it is read."""
        return self.next_position

    def wanted(self, in_flight: int) -> int:
        """A whole batch: nothing is in flight."""
        return self.sizing.segments_max

    def emit(self, read: Read, now_s: float) -> list[Batch]:
        """Segments without roots."""
        self._advance(len(read))
        return [Batch(segments) for _, segments in pieces_of(read)]

    def checkpoint(self) -> None:
        """Count only: what was read is behind what is reserved, which is stored."""
        self.pace = self.next_position - self.counted_from
        self.counted_from = self.next_position

    def reserve(self) -> int:
        """Not more than may be lost by a crash, unless it drains: then what was reserved."""
        wanted = super().reserve()
        return wanted if self.end is not None else min(wanted, RESERVE_POSITIONS_AT_MOST_ONCE_MAX)

    def frontier(self, reserve: int) -> Frontier:
        """The next owner begins behind what is reserved."""
        reserved = self._reserved(reserve)
        cursor = self.reader.cursor(self.next_position)
        return Frontier(
            reserved, cursor, self.finished_reading(), reserved, self.come_to_ms, self.newest_ms
        )


def _batches(read: Read, roots: Numbers, ids: Numbers) -> list[Batch]:
    if not isinstance(read, Mixed):
        return [Batch(read, roots, ids)]
    return [
        Batch(segments, taken(roots, indices), taken(ids, indices))
        for indices, segments in read.pieces
    ]


# --- opening ------------------------------------------------------------------------------------

PENDING: Mapping[str, type[PendingPositions]] = {
    "individual": PendingPositions,
    "all-after": OrderedPositions,
    "none": GivingUpPositions,
}
"""The class of what is pending, by the `retryMode` of the input."""


def pending_of(entry: CatalogEntry) -> type[PendingPositions]:
    """What is done about positions of an input that have failed."""
    kind = PENDING[entry.retry_mode]
    returns = returns_failures(entry.type, entry.plugin, entry.options)
    return ReturningPositions if returns and kind is PendingPositions else kind


class Opener(msgspec.Struct, frozen=True):
    """Opens the partitions of one task."""

    plugin: Input
    entry: CatalogEntry
    sizing: BatchSizing
    clock: Clock
    kind: type[Partition]
    """How each is read, by the guarantee of the job."""
    retry_delay: RetryDelay

    def open(self, number: int, name: str, store: FrontierStore, at: Frontier) -> Partition:
        """A partition that is read from its frontier on.

        Raises:
            UserError: something of it is not there any more.
            Unavailable: the source does not give it now.
        """
        kind, entry = self.kind, self.entry
        columns = entry.batch_format == "arrow"
        reader = open_at(self.plugin, name, at.cursor, at.position, kind.certain, columns)
        own = plugin_reader(reader)
        return kind(
            number=number,
            name=name,
            sizing=self.sizing,
            store=store,
            reader=FilledReader(reader, self.clock, entry.batch_timeout / 1000),
            pending=pending_of(entry)(
                partition=number,
                frontier=at.position,
                capacity=PENDING_FACTOR * self.sizing.pending_max,
                pending_timeout_s=entry.pending_timeout / 1000,
                retry_interval_s=entry.input_retry_timeout / 1000,
                started_s=self.clock.monotonic_s(),
                retry_delay=self.retry_delay,
            ),
            next_position=at.position,
            counted_from=at.position,
            source=source_number(entry.name, name),
            columns=columns,
            sent_before=at.reserved if kind.certain else 0,
            waiting=own if kind.certain and isinstance(own, AckedReader) else None,
        )


def open_at(
    plugin: Input,
    name: str,
    cursor: Cursor,
    position: int,
    certain: bool = True,
    columns: bool = False,
) -> SegmentsReader:
    """A reader of the partition `name` whose next segment is at `position`, or at the end of what
    there is.

    Args:
        cursor: the nearest known one before.
        certain: everything before `position` has been read; under at-most-once it may only have
            been given away.
        columns: read columns, if the plugin can.

    Raises:
        UserError: something of that is not there any more.
        Unavailable: the source does not give it now.
    """
    reader = segments_reader(plugin.open(name, cursor), columns)
    try:
        at = cursor.position
        while at < position:
            skipped = len(reader.read(min(position - at, SKIPPED_AT_ONCE)))
            if not skipped and certain:
                raise _not_given(reader, name, at, position)
            if not skipped:
                break
            at += skipped
    except BaseException:
        reader.close()
        raise
    return reader


# --- reading again ------------------------------------------------------------------------------


def read_again(reader: SegmentsReader, name: str, first: int, last: int) -> Read:
    """The segments from `first` on, at least one, and not beyond `last`. Raises like `open_at`."""
    parts: list[Segments] = []
    count = 0
    while count < last - first:
        more = reader.read(last - first - count)
        if len(more):
            parts.extend(runs_of(more))
            count += len(more)
        elif count and not reader.exhausted():
            break
        else:
            raise _not_given(reader, name, first + count, last)
    return of_runs(parts)


def _not_given(reader: SegmentsReader, name: str, first: int, last: int) -> UserError | Unavailable:
    where = f"{name}: positions {first:,} to {last:,} were read before"
    if reader.exhausted():
        return UserError(
            f"{where} and are not there any more: the source has changed. It must give the same "
            "segments at the same positions until the job is complete; put back what was there, "
            "and submit the job again"
        )
    return Unavailable(f"{where}, and the source does not give them now")
