"""The reading side of an input task: partitions, what is pending, retries, frontiers.

Nothing is held in memory for a retry: positions are stable, so what was lost is read again from the
source under a new attempt, and only what is still incomplete of it is sent.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from onyx.flow.batch import U64, Batch, Segment
from onyx.ledger.lineage import (
    PARTITION_SHIFT,
    POSITIONS_MAX,
    cut,
    positions_of,
    root_ids,
    run_of_ids,
    source_number,
)
from onyx.ledger.pending import NO_SETTINGS, BackOff, PendingWindow
from onyx.model.job import CatalogEntry
from onyx.plugins.protocol import Input, Reader
from onyx.seams import Clock
from onyx.task.source.batch_timeout import FilledReader
from onyx.task.source.event_times import SourceTimes
from onyx.task.source.frontier import Frontier, FrontierStore
from onyx.task.source.rereading import open_at, read_again
from onyx.windows.watermarks import IDLE, SILENT, Mark

WINDOW_FACTOR = 8
"""Positions between a partition's frontier and its newest, as a multiple of `maxPending`: one slow
tree does not stop the others at once."""
RESERVE_POSITIONS_MIN = 100
RESERVE_POSITIONS_AT_MOST_ONCE_MAX = 50_000
"""Positions reserved at a time: as many as were read in the last period between two checkpoints.
After a crash, at-most-once loses what was reserved and not read, hence its limit; a job that is
being drained reads that much more, as if it had been told a little later."""
RESERVING_MAX = 8
"""Partitions that wait for their reservation at a time: the others are not read yet."""
DRAIN_IDLE_S = 2.0
"""A source that has given nothing for so long gives all again that it had ever given."""


@dataclass(slots=True)
class Partition:
    """An open partition of the source."""

    number: int
    name: str
    store: FrontierStore
    reader: Reader
    window: PendingWindow
    next_position: int
    source: int
    """`source_number` of the partition."""
    sent_before: int = 0
    """Former owners have sent nothing from this position on."""
    to_retry: deque[tuple[int, int]] = field(default_factory=deque)
    """Ranges [first, last) to be read again."""
    replays: int = 0
    """The first so many of them are what was in flight when the job was re-allocated."""
    end: int | None = None
    """Where a partition that is drained ends; nothing is read from there on."""
    idle_since_s: float | None = None
    counted_from: int = 0
    pace: int = 0
    """Positions read in the last whole period between two checkpoints."""

    @property
    def ended(self) -> bool:
        """It gives nothing new any more."""
        return self.reader.exhausted() or self.next_position == self.end

    def finished_reading(self) -> bool:
        return self.ended and not self.to_retry

    def complete(self) -> bool:
        """Everything read, and every tree of it processed."""
        return self.finished_reading() and self.window.in_flight == 0

    def drain(self) -> None:
        """Read no further than somebody may have read already."""
        if self.end is None:
            self.end = max(self.next_position, self.sent_before)
            if isinstance(self.reader, FilledReader):
                self.reader.hurry()

    def count(self) -> None:
        """A period between two checkpoints is over."""
        self.pace = self.next_position - self.counted_from
        self.counted_from = self.next_position

    @property
    def lately(self) -> int:
        """Positions read in this period or in the last one."""
        return max(self.pace, self.next_position - self.counted_from)


class Source:
    """All partitions that one peer of an input task owns."""

    def __init__(
        self,
        plugin: Input,
        entry: CatalogEntry,
        clock: Clock,
        tracked: bool,
        times: SourceTimes | None = None,
        back_off: BackOff = NO_SETTINGS,
    ) -> None:
        """
        Args:
            times: takes notice of event times; None where nobody needs them.
            back_off: before a retry that a flow condition asks for.
        """
        self.plugin = plugin
        self.examined: bool = getattr(plugin, "examined", False)
        """Whether the plugin gives only what can travel, and need not be looked at."""
        self._times = times
        self._entry = entry
        self._clock = clock
        self._tracked = tracked
        self._turn = 0
        self._next_check_s = 0.0
        self._back_off = back_off
        self.rested_s = math.inf
        """When something has rested long enough to be read again."""
        self._since_flush = 0
        self._waiting_for_room = 0
        self.partitions: dict[int, Partition] = {}
        self.exhausted: set[int] = set()
        """Partitions that were wholly complete already when this peer took them over."""
        self.completed = 0
        """Trees completed here, for metrics."""
        self._retried = 0

    @property
    def in_flight(self) -> int:
        return sum(each.window.in_flight for each in self.partitions.values())

    @property
    def resting(self) -> int:
        """Segments that wait for a retry, about."""
        return sum(each.window.resting for each in tuple(self.partitions.values()))

    def oldest_s(self, now_s: float) -> float | None:
        """Seconds since the oldest segment in flight was sent; None if there is none."""
        ages = (each.window.oldest_s(now_s) for each in tuple(self.partitions.values()))
        return max((age for age in ages if age is not None), default=None)

    def open(self, number: int, name: str, store: FrontierStore, at: Frontier) -> None:
        """Take over a partition at its frontier."""
        if at.exhausted:
            self.exhausted.add(number)
            return
        self.partitions[number] = Partition(
            number=number,
            name=name,
            store=store,
            reader=self._filled(open_at(self.plugin, name, at.cursor, at.position, self._tracked)),
            window=PendingWindow(
                partition=number,
                frontier=at.position,
                capacity=WINDOW_FACTOR * self._entry.max_pending,
                pending_timeout_s=self._entry.pending_timeout / 1000,
                retry_interval_s=self._entry.input_retry_timeout / 1000,
                started_s=self._clock.monotonic_s(),
                back_off=self._back_off,
            ),
            next_position=at.position,
            counted_from=at.position,
            source=source_number(self._entry.name, name),
            sent_before=at.reserved if self._tracked else 0,
        )

    def _filled(self, reader: Reader) -> Reader:
        timeout_s = self._entry.batch_timeout / 1000
        return FilledReader(reader, self._clock, timeout_s) if timeout_s else reader

    def give_away(self, numbers: Collection[int]) -> bool:
        """Leave partitions to others, who find in the store exactly how far they were read; True
        when that is done."""
        mine = [self.partitions[number] for number in numbers if number in self.partitions]
        stored = [each.store.save(self._place(each, reserve=0)) for each in mine]
        if not all(stored):
            return False
        for number in numbers:
            if number in self.partitions:
                self.partitions.pop(number).reader.close()
            self.exhausted.discard(number)
        if self._times is not None:
            self._times.forget(numbers)
        return True

    def drain(self) -> None:
        """Read nothing new from now on; what is pending is still replayed until it is complete."""
        for partition in self.partitions.values():
            partition.drain()

    @property
    def known(self) -> list[int]:
        """Numbers of the partitions that this peer has taken over, in order."""
        return sorted(self.exhausted.union(self.partitions))

    def close(self) -> None:
        for partition in self.partitions.values():
            partition.reader.close()
        self.partitions.clear()
        self.plugin.close()

    def complete(self, roots: U64) -> None:
        """Mark trees as processed; late news of older attempts is ignored."""
        for number, mine in self._by_partition(roots):
            self.completed += self.partitions[number].window.complete(mine)

    def incomplete(self, roots: U64) -> U64:
        """Those of the roots whose trees are not complete yet, each once."""
        found = [
            self.partitions[number].window.incomplete(mine)
            for number, mine in self._by_partition(roots)
        ]
        return np.concatenate(found) if found else roots[:0]

    def take_retried(self) -> int:
        """Segments sent again since the last time this was asked."""
        retried, self._retried = self._retried, 0
        return retried

    def force_retry(self, roots: U64, retries_max: int) -> None:
        """Read these again after a rest (flow conditions with `action: retry`), each at most so
        many times."""
        now_s = self._clock.monotonic_s()
        for number, mine in self._by_partition(roots):
            window = self.partitions[number].window
            window.retry_roots(mine, retries_max, now_s)
            self.rested_s = min(self.rested_s, window.rested_s)

    def replay_pending(self) -> None:
        """After a re-allocation: whatever was in flight is lost, read it again at once."""
        for partition in self.partitions.values():
            partition.to_retry.clear()
            partition.to_retry.extend(partition.window.replay_all())
            partition.replays = len(partition.to_retry)

    def read(self) -> Batch | None:
        """The next batch to send, retries first; None when there is nothing or no room now."""
        self._check_timeouts()
        self._waiting_for_room = 0
        waiting = list(self.partitions.values())
        for step in range(len(waiting)):
            partition = waiting[(self._turn + step) % len(waiting)]
            batch = self._retry(partition) if partition.to_retry else self._advance(partition)
            if batch is not None:
                self._turn += step + 1
                self._since_flush += len(batch)
                return batch
        return None

    def wants_flush(self) -> bool:
        """Whether outputs should make durable what they hold: half of what may be pending has
        been sent since the last time, or everything has been read."""
        if not self._tracked or not self._since_flush:
            return False
        due = self._since_flush * 2 >= self._entry.max_pending or self.finished_reading()
        if due:
            self._since_flush = 0
        return due

    def mark(self) -> Mark:
        """How far event time has come by what was read. While there is something to replay, what is
        to come may be older than what had been read before."""
        if self._times is None:
            return IDLE
        if any(each.replays for each in self.partitions.values()):
            return SILENT
        return self._times.mark([n for n, each in self.partitions.items() if not each.ended])

    def frontiers(self) -> dict[int, int]:
        """For each partition the lowest position that may be sent again, by this peer or by whoever
        takes over from what is stored."""
        found = {number: each.store.position for number, each in self.partitions.items()}
        return found | dict.fromkeys(self.exhausted, POSITIONS_MAX - 1)

    def finished_reading(self) -> bool:
        return all(each.finished_reading() for each in self.partitions.values())

    def all_complete(self) -> bool:
        return all(each.complete() for each in self.partitions.values())

    def save_frontiers(self) -> bool:
        """Start saving what changed; True when all of it is stored."""
        started = [
            each.store.save(self._place(each, self._reserve(each) if each.lately else 0))
            for each in self.partitions.values()
        ]
        return all(started)

    def checkpoint(self) -> None:
        """The same, every few seconds: what is read meanwhile is the pace of a partition."""
        for partition in self.partitions.values():
            partition.count()
        if self._tracked:
            self.save_frontiers()

    def _reserve(self, partition: Partition) -> int:
        """How many positions to reserve before they are read."""
        if partition.finished_reading():
            return 0
        if partition.end is not None:
            return partition.end - partition.next_position
        wanted = max(partition.lately, RESERVE_POSITIONS_MIN, self._entry.batch_size)
        return wanted if self._tracked else min(wanted, RESERVE_POSITIONS_AT_MOST_ONCE_MAX)

    def _place(self, partition: Partition, reserve: int) -> Frontier:
        reserved = max(partition.next_position + reserve, partition.sent_before)
        if self._tracked:
            position = partition.window.frontier
            cursor = partition.reader.cursor(position)
            return Frontier(position, cursor, partition.complete(), reserved)
        # What is reserved is given away: it is never read again.
        cursor = partition.reader.cursor(partition.next_position)
        return Frontier(reserved, cursor, partition.finished_reading(), reserved)

    def _advance(self, partition: Partition) -> Batch | None:
        wanted = self._entry.batch_size
        if self._tracked:
            free = self._entry.max_pending - self.in_flight
            if free < min(wanted, self._entry.max_pending // 4):
                # Many small batches would cost more than waiting for room for a larger one.
                return None
            wanted = min(wanted, free, partition.window.room)
        if partition.finished_reading():
            return None
        wanted = min(wanted, self._reserved(partition))
        if wanted <= 0:
            return None
        segments = partition.reader.read(wanted)
        if self._times is not None:
            self._times.read(partition.number, segments)
        if not segments:
            self._give_up_if_idle(partition)
            return None
        first = partition.next_position
        partition.next_position += len(segments)
        partition.idle_since_s = None
        if not self._tracked:
            return Batch(segments)
        roots = partition.window.emit(len(segments), self._clock.monotonic_s())
        ids = run_of_ids(partition.source, first, partition.next_position)
        return Batch(segments, roots, ids)

    def _reserved(self, partition: Partition) -> int:
        """Positions that may be sent now: each is reserved in the store before it ever is."""
        store, at = partition.store, partition.next_position
        room, wanted = store.reserved - at, self._reserve(partition)
        if room <= wanted // 2 and self._waiting_for_room < RESERVING_MAX:
            self._waiting_for_room += room <= 0
            store.save(self._place(partition, wanted))
            room = store.reserved - at
        return room if partition.end is None else min(room, partition.end - at)

    def _give_up_if_idle(self, partition: Partition) -> None:
        """A partition that drains was reserved further than it was ever read."""
        if partition.end is None:
            return
        now_s = self._clock.monotonic_s()
        if partition.idle_since_s is None:
            partition.idle_since_s = now_s
        elif now_s - partition.idle_since_s >= DRAIN_IDLE_S:
            partition.end = partition.next_position

    def _retry(self, partition: Partition) -> Batch | None:
        first, last = partition.to_retry[0]
        # What has completed since need not be read again, and readers may have forgotten it.
        first = max(first, partition.window.frontier)
        middle = min(last, first + self._entry.batch_size)
        segments: list[Segment] = []
        if partition.window.any_due(first, middle):
            segments = self._reread(partition, first, middle)
            middle = first + len(segments)
        partition.to_retry.popleft()  # not before it was read, which may be impossible now
        if middle < last:
            partition.to_retry.appendleft((middle, last))
        elif partition.replays:
            partition.replays -= 1
        roots = partition.window.retry(first, middle, self._clock.monotonic_s())
        if not len(roots):
            return None
        positions = positions_of(roots)
        chosen = positions.astype(np.int64) - first
        self._retried += len(roots)
        return Batch(
            [segments[index] for index in chosen.tolist()],
            roots,
            root_ids(partition.source, positions),
        )

    def _reread(self, partition: Partition, first: int, last: int) -> list[Segment]:
        cursor = partition.reader.cursor(partition.window.frontier)
        reader = open_at(self.plugin, partition.name, cursor, first)
        try:
            return read_again(reader, partition.name, first, last)
        finally:
            reader.close()

    def _check_timeouts(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s >= self.rested_s:
            self._take_rested(now_s)
        if not self._tracked or now_s < self._next_check_s:
            return
        self._next_check_s = now_s + self._entry.input_retry_timeout / 1000
        for partition in self.partitions.values():
            partition.to_retry.extend(partition.window.expired(now_s))

    def _take_rested(self, now_s: float) -> None:
        for partition in self.partitions.values():
            partition.to_retry.extend(partition.window.rested(now_s))
        rested_s = (each.window.rested_s for each in self.partitions.values())
        self.rested_s = min(rested_s, default=math.inf)

    def _by_partition(self, roots: U64) -> list[tuple[int, U64]]:
        """Increasing roots of the partitions that are here."""
        return [
            (number, roots[part])
            for number, part in cut(roots, PARTITION_SHIFT)
            if number in self.partitions
        ]
