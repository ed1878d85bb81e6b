"""The reading side of an input task: partitions, what is pending, retries, frontiers.

Nothing is held in memory for a retry: positions are stable, so what was lost is read again from the
source under a new attempt, and only what is still incomplete of it is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from onyx.flow.batch import U64, Batch, Segment
from onyx.ledger.lineage import partitions_of, positions_of, root_ids
from onyx.ledger.pending import PendingWindow
from onyx.model.job import CatalogEntry
from onyx.plugins.protocol import Cursor, Input, Reader
from onyx.seams import Clock
from onyx.task.frontier import Frontier, FrontierStore

WINDOW_FACTOR = 8
"""Positions between a partition's frontier and its newest, as a multiple of `maxPending`: one slow
tree does not stop the others at once."""
RESERVE_POSITIONS_MIN = 1_000
RESERVE_POSITIONS_MAX = 50_000
"""At-most-once: positions given away at a time. A crash loses at most what was reserved, so this is
no more than was read before, within these bounds: a small partition is not lost whole."""


@dataclass(slots=True)
class Partition:
    """An open partition of the source."""

    number: int
    name: str
    store: FrontierStore
    reader: Reader
    window: PendingWindow
    next_position: int
    to_retry: deque[tuple[int, int]] = field(default_factory=deque)
    """Ranges [first, last) to be read again."""
    reserved: int = 0

    def finished_reading(self) -> bool:
        return not self.to_retry and self.reader.exhausted()

    def complete(self) -> bool:
        """Everything read, and every tree of it processed."""
        return self.finished_reading() and self.window.in_flight == 0

    def frontier(self) -> Frontier:
        position = self.window.frontier
        return Frontier(position, self.reader.cursor(position), self.complete())


class Source:
    """All partitions that one peer of an input task owns."""

    def __init__(self, plugin: Input, entry: CatalogEntry, clock: Clock, tracked: bool) -> None:
        self.plugin = plugin
        self._entry = entry
        self._clock = clock
        self._tracked = tracked
        self._turn = 0
        self._next_check_s = 0.0
        self._since_flush = 0
        self.partitions: dict[int, Partition] = {}
        self.exhausted: set[int] = set()
        """Partitions that were wholly complete already when this peer took them over."""
        self.completed = 0
        """Trees completed here, for metrics."""
        self._retried = 0

    @property
    def in_flight(self) -> int:
        return sum(each.window.in_flight for each in self.partitions.values())

    def open(self, number: int, name: str, store: FrontierStore, at: Frontier) -> None:
        """Take over a partition at its frontier."""
        if at.exhausted:
            self.exhausted.add(number)
            return
        self.partitions[number] = Partition(
            number=number,
            name=name,
            store=store,
            reader=self._open_at(name, at.cursor, at.position),
            window=PendingWindow(
                partition=number,
                frontier=at.position,
                capacity=WINDOW_FACTOR * self._entry.max_pending,
                pending_timeout_s=self._entry.pending_timeout / 1000,
                retry_interval_s=self._entry.input_retry_timeout / 1000,
                started_s=self._clock.monotonic_s(),
            ),
            next_position=at.position,
            reserved=at.position,
        )

    def drop(self, number: int) -> None:
        """Give a partition away."""
        if number in self.partitions:
            self.partitions.pop(number).reader.close()
        self.exhausted.discard(number)

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

    def force_retry(self, roots: U64) -> None:
        """Replay these now (flow conditions with `action: retry`)."""
        for number, mine in self._by_partition(roots):
            partition = self.partitions[number]
            partition.to_retry.extend(partition.window.retry_roots(mine))

    def replay_pending(self) -> None:
        """After a re-allocation: whatever was in flight is lost, read it again at once."""
        for partition in self.partitions.values():
            partition.to_retry.clear()
            partition.to_retry.extend(partition.window.replay_all())

    def read(self) -> Batch | None:
        """The next batch to send, retries first; None when there is nothing or no room now."""
        self._check_timeouts()
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

    def finished_reading(self) -> bool:
        return all(each.finished_reading() for each in self.partitions.values())

    def all_complete(self) -> bool:
        return all(each.complete() for each in self.partitions.values())

    def save_frontiers(self) -> bool:
        """Start saving what changed; True when all of it is stored."""
        started = [each.store.save(self._place(each)) for each in self.partitions.values()]
        return all(started)

    def _place(self, partition: Partition) -> Frontier:
        if self._tracked:
            return partition.frontier()
        exact = partition.next_position
        return Frontier(exact, partition.reader.cursor(exact), partition.reader.exhausted())

    def _advance(self, partition: Partition) -> Batch | None:
        wanted = self._entry.batch_size
        if self._tracked:
            free = self._entry.max_pending - self.in_flight
            if free < min(wanted, self._entry.max_pending // 4):
                # Many small batches would cost more than waiting for room for a larger one.
                return None
            wanted = min(wanted, free, partition.window.room)
        elif not self._reserve(partition):
            return None
        if wanted <= 0 or partition.reader.exhausted():
            return None
        segments = partition.reader.read(wanted)
        if not segments:
            return None
        partition.next_position += len(segments)
        if not self._tracked:
            return Batch(segments)
        roots = partition.window.emit(len(segments), self._clock.monotonic_s())
        return Batch(segments, roots, root_ids(partition.number, positions_of(roots)))

    def _reserve(self, partition: Partition) -> bool:
        """At-most-once: a position is given away in the store before it is ever sent."""
        if partition.next_position + self._entry.batch_size <= partition.reserved:
            return True
        at = partition.next_position
        reserve = min(max(at, RESERVE_POSITIONS_MIN), RESERVE_POSITIONS_MAX)
        wanted = at + max(reserve, self._entry.batch_size)
        if partition.store.save(Frontier(wanted, partition.reader.cursor(at))):
            partition.reserved = wanted
            return True
        return False

    def _retry(self, partition: Partition) -> Batch | None:
        first, last = partition.to_retry.popleft()
        middle = min(last, first + self._entry.batch_size)
        if middle < last:
            partition.to_retry.appendleft((middle, last))
        roots = partition.window.retry(first, middle, self._clock.monotonic_s())
        if not len(roots):
            return None
        segments = self._reread(partition, first, middle)
        positions = positions_of(roots)
        chosen = positions.astype(np.int64) - first
        self._retried += len(roots)
        return Batch(
            [segments[index] for index in chosen.tolist()],
            roots,
            root_ids(partition.number, positions),
        )

    def _reread(self, partition: Partition, first: int, last: int) -> list[Segment]:
        cursor = partition.reader.cursor(partition.window.frontier)
        reader = self._open_at(partition.name, cursor, first)
        try:
            segments: list[Segment] = []
            while len(segments) < last - first:
                more = reader.read(last - first - len(segments))
                assert more, f"{partition.name}: positions {first} to {last} cannot be read again"
                segments.extend(more)
            return segments
        finally:
            reader.close()

    def _open_at(self, name: str, cursor: Cursor, position: int) -> Reader:
        """A reader whose next segment is at `position`, skipping from the nearest cursor."""
        reader = self.plugin.open(name, cursor)
        left = position - cursor.position
        while left > 0 and not reader.exhausted():
            left -= len(reader.read(min(left, 10_000)))
        return reader

    def _check_timeouts(self) -> None:
        now_s = self._clock.monotonic_s()
        if not self._tracked or now_s < self._next_check_s:
            return
        self._next_check_s = now_s + self._entry.input_retry_timeout / 1000
        for partition in self.partitions.values():
            partition.to_retry.extend(partition.window.expired(now_s))

    def _by_partition(self, roots: U64) -> Sequence[tuple[int, U64]]:
        numbers = partitions_of(roots)
        if len(self.partitions) == 1:
            (number,) = self.partitions
            return [(number, roots[numbers == number])]
        return [
            (number, roots[numbers == number])
            for number in np.unique(numbers).tolist()
            if number in self.partitions
        ]
