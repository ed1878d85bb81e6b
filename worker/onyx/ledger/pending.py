"""What one input peer has in flight for one partition, and how far the partition is complete.

Positions are dense, so the window is a ring of small columns instead of a map of message ids. A
position is IN_FLIGHT from `emit` until its tree is complete (DONE); it becomes DUE when it has to
be read again: its pending timeout has passed, or the job was re-allocated. If a flow condition asks
for a retry it is RESTING first, longer with each retry, because what failed a moment ago would
mostly fail again. `retry` sends what is due as a new attempt, a new root, so that a late ack of the
old one cannot corrupt it. Until then the old attempt may still complete, and nothing is read again.

Only retries that conditions ask for are counted, and what has had as many as it may is marked as
final in its roots. Whoever takes over a partition counts anew.

Time-outs rotate like the original's buckets: time is cut in intervals (`inputRetryTimeout`), and a
position expires at the `n`-th rotation after it was sent, n = pendingTimeout / inputRetryTimeout.
The interval is kept for each position; scanning for old ones costs less than keeping buckets.

Not thread-safe; at-most-once has no window.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from onyx.ledger.lineage import (
    FINAL,
    POSITIONS_MAX,
    U64,
    Indices,
    next_attempt,
    pack_roots,
    run_of_roots,
    unpack,
)
from onyx.ledger.retry_delay import DEFAULT, RetryDelay

# Counting needs DONE to be 0.
_DONE, _IN_FLIGHT, _DUE, _RESTING = np.uint8(0), np.uint8(1), np.uint8(2), np.uint8(3)
_TRIES_MAX = np.iinfo(np.uint16).max

SLOTS_FIRST = 1024
"""Length of a ring before it grows."""
GAP_POSITIONS_MAX = 1024
"""Due positions nearer than this are read again in one range: seeking costs more than skipping."""


class Range(NamedTuple):
    """Positions `first` to before `end`."""

    first: int
    end: int


def rotations_until_expiry(pending_timeout_s: float, retry_interval_s: float) -> int:
    """How many rotations a position outlives: the number of buckets of the original, at least 1."""
    return max(1, -int(-(pending_timeout_s * 1e6) // (retry_interval_s * 1e6)))


class PendingWindow:
    """Positions `[frontier, next_position)` of one partition."""

    def __init__(
        self,
        partition: int,
        frontier: int = 0,
        capacity: int = 65_536,
        pending_timeout_s: float = 60.0,
        retry_interval_s: float = 1.0,
        started_s: float = 0.0,
        retry_delay: RetryDelay = DEFAULT,
    ) -> None:
        """
        Args:
            partition: number of the partition within the job.
            frontier: lowest position that is not known to be complete; the first one emitted.
            capacity: most positions between the frontier and the newest, rounded up to a power of
                two. A multiple of the job's maxPending, so that one slow tree does not stop the
                others. The columns (12 bytes a position) are as long as was needed so far.
            pending_timeout_s: a tree that is not complete after this is read again.
            retry_interval_s: period at which that is looked at.
            started_s: monotonic time now, from which rotations are counted.
            retry_delay: before a retry that a flow condition asks for.
        """
        assert frontier >= 0
        assert capacity > 0
        self.partition = partition
        self.capacity = 0
        self.widen(capacity)
        self._slots = min(self.capacity, SLOTS_FIRST)
        self._mask = self._slots - 1
        self._interval_s = retry_interval_s
        self._started_s = started_s
        self._lifetime = rotations_until_expiry(pending_timeout_s, retry_interval_s)
        self._rotation = 0
        self._frontier = frontier
        self._next = frontier
        self._incomplete = 0
        self._state = np.zeros(self._slots, dtype=np.uint8)
        self._attempt = np.zeros(self._slots, dtype=np.uint8)
        self._sent = np.zeros(self._slots, dtype=np.int64)
        self._retries = np.zeros(self._slots, dtype=np.uint16)
        self._retry_delay = retry_delay
        self._any_retried = False
        """Whether anything ever was. Until then the columns of attempts and retries are zeros, and
        nobody writes or reads them."""
        self._resting: list[tuple[float, int, int]] = []
        """A heap of ranges that rest: until when, from where to where."""

    @property
    def frontier(self) -> int:
        """Lowest position that is not complete. Everything below never has to be read again."""
        return self._frontier

    @property
    def next_position(self) -> int:
        """Position of the next segment emitted."""
        return self._next

    @property
    def in_flight(self) -> int:
        """Positions emitted and not complete, due ones included: what `maxPending` limits."""
        return self._incomplete

    def widen(self, capacity: int) -> None:
        """Let there be at least so many positions between the frontier and the newest, rounded up
        to a power of two."""
        if capacity > self.capacity:
            self.capacity = 1 << (capacity - 1).bit_length()

    @property
    def room(self) -> int:
        """How many positions can be emitted before the ring is full."""
        return self.capacity - (self._next - self._frontier)

    def oldest_s(self, now_s: float) -> float | None:
        """Seconds since the lowest position that is not complete was sent, to the interval at which
        time-outs are looked at; None when all are complete."""
        if self._incomplete == 0:
            return None
        sent = int(self._sent[self._frontier & self._mask])
        return max(0.0, now_s - self._started_s - sent * self._interval_s)

    def emit(self, n: int, now_s: float) -> U64:
        """Roots for the next `n` positions, first attempt. At most `room`."""
        assert 0 <= n <= self.room, "the window is full: emit at most `room`"
        if self._next + n - self._frontier > self._slots:
            self._grow(self._next + n - self._frontier)
        sent = self._rotation_at(now_s)
        first, self._next = self._next, self._next + n
        for part in self._slices(first, self._next):
            self._state[part] = _IN_FLIGHT
            self._sent[part] = sent
            if self._any_retried:
                self._attempt[part] = 0
                self._retries[part] = 0
        self._incomplete += n
        return run_of_roots(self.partition, first, self._next)

    def complete(self, roots: U64) -> int:
        """Trees that are complete; those of other partitions, of older attempts and those already
        known are ignored.

        Returns:
            How many positions became complete.
        """
        roots = _increasing(roots)
        where: slice | Indices | None = self._run_of(roots)
        if where is None:
            where = self._slots_of(roots)
        count = int(np.count_nonzero(self._state[where]))
        self._state[where] = _DONE
        self._incomplete -= count
        self._advance()
        return count

    def incomplete(self, roots: U64) -> U64:
        """Those of the roots that `complete` would make complete, each once."""
        roots = np.unique(roots)
        partitions, attempts, positions = unpack(roots)
        slots = positions.view(np.int64) & self._mask
        meant = (
            (partitions == self.partition)
            & (positions >= self._frontier)
            & (positions < self._next)
            & (self._attempt[slots] == attempts)
            & (self._state[slots] != _DONE)
        )
        found: U64 = roots[meant]
        return found

    def expired(self, now_s: float) -> list[Range]:
        """What has become due because its pending timeout has passed, each time-out once."""
        rotation = self._rotation_at(now_s)
        if rotation == self._rotation or self._incomplete == 0:
            self._rotation = rotation
            return []
        self._rotation = rotation
        positions = self._positions(_IN_FLIGHT)
        sent = self._sent[positions & self._mask]
        return self._make_due(positions[sent + self._lifetime <= rotation])

    def retry_roots(self, roots: U64, retries_max: int, now_s: float) -> None:
        """A flow condition asks for these to be read again, `retries_max` times each at most; older
        attempts, and what is to be read again already, are ignored."""
        slots = self._slots_of(_increasing(roots))
        self._any_retried = True
        wanted = slots[self._state[slots] == _IN_FLIGHT]
        before = self._retries[wanted]
        self._retries[wanted] = np.minimum(before, _TRIES_MAX - 1) + np.uint16(1)
        self._attempt[wanted[before.astype(np.int64) + 1 >= retries_max]] |= np.uint8(FINAL)
        self._state[wanted] = _RESTING
        positions = ((wanted - self._frontier) & self._mask) + self._frontier
        for retries in np.unique(before).tolist():
            until_s = now_s + self._retry_delay.delay_s(retries)
            for first, end in _ranges(np.sort(positions[before == retries]), gap=1):
                heapq.heappush(self._resting, (until_s, first, end))

    @property
    def resting(self) -> int:
        """Positions that rest before they are read again; from any thread, about."""
        return int(np.count_nonzero(self._state == _RESTING)) if self._resting else 0

    @property
    def rested_s(self) -> float:
        """When something has rested long enough; never: infinity."""
        return self._resting[0][0] if self._resting else math.inf

    def rested(self, now_s: float) -> list[Range]:
        """What has become due because it has rested long enough."""
        found: list[Indices] = []
        while self._resting and self._resting[0][0] <= now_s:
            _, first, end = heapq.heappop(self._resting)
            positions = np.arange(max(first, self._frontier), end)
            found.append(positions[self._state[positions & self._mask] == _RESTING])
        return self._make_due(np.unique(np.concatenate(found))) if found else []

    def replay_all(self) -> list[Range]:
        """Make all that is not complete due: the job was re-allocated, and trees may be lost.

        Returns:
            Everything due, what was due before included.
        """
        self._resting.clear()
        self._make_due(self._positions(_IN_FLIGHT))
        self._make_due(self._positions(_RESTING))
        return self.due()

    def due(self) -> list[Range]:
        """Everything that waits to be read again."""
        return _ranges(self._positions(_DUE))

    def any_due(self, first: int, end: int) -> bool:
        """Whether `retry` would find something in `[first, end)`."""
        first, end = max(first, self._frontier), min(end, self._next)
        return any(bool((self._state[part] == _DUE).any()) for _, part in self._parts(first, end))

    def retry(self, first: int, end: int, now_s: float) -> U64:
        """New roots (attempt + 1) for what is due in `[first, end)`, in order; in flight from now.
        What completed meanwhile is not among them: the segments to send again are those whose
        positions (`positions_of`) are in the roots."""
        first, end = max(first, self._frontier), min(end, self._next)
        if first >= end:
            return np.empty(0, dtype=np.uint64)
        positions = np.arange(first, end)
        positions = positions[self._state[positions & self._mask] == _DUE]
        slots = positions & self._mask
        self._any_retried = True
        self._state[slots] = _IN_FLIGHT
        self._sent[slots] = self._rotation_at(now_s)
        self._attempt[slots] = next_attempt(self._attempt[slots])
        attempts = self._attempt[slots].astype(np.uint64)
        return pack_roots(self.partition, attempts, positions.astype(np.uint64))

    def _grow(self, needed: int) -> None:
        """Make room for so many positions. Not all at once from the start: most partitions never
        need it, and a ring that is short enough stays in the processor's cache."""
        positions = np.arange(self._frontier, self._next)
        before = positions & self._mask
        self._slots = 1 << (needed - 1).bit_length()
        self._mask = self._slots - 1
        now = positions & self._mask
        for name in ("_state", "_attempt", "_sent", "_retries"):
            column = getattr(self, name)
            longer = np.zeros(self._slots, dtype=column.dtype)
            longer[now] = column[before]
            setattr(self, name, longer)

    def _rotation_at(self, now_s: float) -> int:
        return max(self._rotation, int((now_s - self._started_s) // self._interval_s))

    def _run_of(self, roots: U64) -> slice | None:
        """The slots of increasing roots that follow one another, as they mostly do; None if these
        do not."""
        count = len(roots)
        if count == 0 or int(roots[-1]) - int(roots[0]) != count - 1:
            return None
        first = int(roots[0]) & (POSITIONS_MAX - 1)
        start = first & self._mask
        run = slice(start, start + count)
        attempt = (int(roots[0]) >> 40) & 0xFF
        whole = (
            int(roots[0]) >> 48 == self.partition
            and self._frontier <= first
            and first + count <= self._next
            and run.stop <= self._slots
            and (bool((self._attempt[run] == attempt).all()) if self._any_retried else not attempt)
        )
        return run if whole else None

    def _slots_of(self, roots: U64) -> Indices:
        """Ring slots of those of the increasing roots that are of this partition, window and
        current attempt."""
        if self._of_one_attempt(roots):
            slots: Indices = (roots & np.uint64(self._mask)).view(np.int64)
            valid = self._attempt[slots] == (int(roots[0]) >> 40) & 0xFF
        else:
            partitions, attempts, unsigned = unpack(roots)
            positions = unsigned.view(np.int64)
            slots = positions & self._mask
            valid = (
                (partitions == self.partition)
                & (positions >= self._frontier)
                & (positions < self._next)
                & (self._attempt[slots] == attempts)
            )
        return slots if valid.all() else slots[valid]

    def _of_one_attempt(self, roots: U64) -> bool:
        """Whether increasing roots are all of this partition and window and of one attempt."""
        if len(roots) == 0:
            return False
        first, last = int(roots[0]), int(roots[-1])
        return (
            first >> 40 == last >> 40
            and first >> 48 == self.partition
            and first & (POSITIONS_MAX - 1) >= self._frontier
            and last & (POSITIONS_MAX - 1) < self._next
        )

    def _positions(self, state: np.uint8) -> Indices:
        """Positions of the window in one state, in order."""
        found = [
            np.flatnonzero(self._state[part] == state) + first
            for first, part in self._parts(self._frontier, self._next)
        ]
        return np.concatenate(found) if found else np.empty(0, dtype=np.intp)

    def _make_due(self, positions: Indices) -> list[Range]:
        self._state[positions & self._mask] = _DUE
        return _ranges(positions)

    def _advance(self) -> None:
        """Move the frontier up to the first position that is not complete."""
        if self._state[self._frontier & self._mask] != _DONE:
            return
        for first, part in self._parts(self._frontier, self._next):
            incomplete = self._state[part] != _DONE
            offset = int(incomplete.argmax())
            if incomplete[offset]:
                self._frontier = first + offset
                return
        self._frontier = self._next

    def _parts(self, first: int, end: int) -> Iterator[tuple[int, slice]]:
        """`[first, end)` as slices of the ring, each with its first position."""
        while first < end:
            start = first & self._mask
            count = min(end - first, self._slots - start)
            yield first, slice(start, start + count)
            first += count

    def _slices(self, first: int, end: int) -> list[slice]:
        return [part for _, part in self._parts(first, end)]


def _increasing(roots: U64) -> U64:
    """The same roots in order, each once: as they mostly come."""
    in_order = len(roots) < 2 or np.count_nonzero(roots[1:] > roots[:-1]) == len(roots) - 1
    return roots if in_order else np.unique(roots)


def _ranges(positions: Indices, gap: int = GAP_POSITIONS_MAX) -> list[Range]:
    """Increasing positions as ranges, near ones together."""
    if len(positions) == 0:
        return []
    breaks = np.flatnonzero(np.diff(positions) > gap) + 1
    firsts = positions[np.concatenate(([0], breaks))].tolist()
    lasts = positions[np.concatenate((breaks - 1, [len(positions) - 1]))].tolist()
    return [Range(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]
