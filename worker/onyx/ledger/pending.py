"""What one input peer has in flight for one partition, and how far the partition is complete.

Positions are dense, so what is in flight is a ring of columns instead of a map of message ids. A
position is IN_FLIGHT from `emit` until its tree is complete (DONE); it becomes DUE when it has to
be read again: nobody has worked on it for its pending timeout, or the job was re-allocated. If a
flow condition asks for a retry it is RESTING first, longer with each retry, because what failed a
moment ago would mostly fail again. `retry` sends what is due as a new attempt, a new root, so that
acks of two attempts never meet in one tree.

A complete tree is complete whichever attempt it is of: everything that was made of the segment has
been processed. So an attempt that comes late counts, also after its segment was sent again; what
the younger attempt still does is a repeat, and its completion is ignored.

Whoever works on segments says so (`held`) a few times in each timeout, so a function that takes an
hour is waited for.

Only retries that conditions and functions ask for are counted, and what has had as many as it may
is marked as final in its roots. Whoever takes over a partition counts anew.

Time-outs rotate like the original's buckets: time is cut in intervals (`inputRetryTimeout`), and a
position expires at the `n`-th rotation after it was sent, n = pendingTimeout / inputRetryTimeout,
or one later after it was held. Scanning for old ones costs less than keeping buckets.

What is done about a position that has failed is said by the `retryMode` of an input:

`individual`: it is read again by itself (`PendingPositions`). Of a source that hears of failures,
what asks for a retry counts as complete, because the source gives it again at another position;
what was lost is still read again from here (`ReturningPositions`).

`all-after`: it is read again with all that was emitted after it, complete or not, in order, so that
who gets the partition in order gets it in order again (`OrderedPositions`). Invariant: what is sent
is the position after the one sent before, or one that was sent before. Three things follow. Nothing
new is emitted while a position rests. Positions that wait to be read again are one range, up to the
newest. A completion counts only if it is of the current attempt: an older one says nothing of what
is to be sent again.

`none`: it counts as complete, and is counted (`GivingUpPositions`).

Not thread-safe, but for `InFlightRoots`; under at-most-once nothing is pending.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from onyx.base.runs import Numbers, Run, array_of, as_run, is_increasing
from onyx.ledger.lineage import (
    FINAL,
    PARTITION_SHIFT,
    POSITIONS_MAX,
    U64,
    Indices,
    next_attempt,
    pack_roots,
    partitions_of,
    positions_of,
    run_of_roots,
)
from onyx.ledger.retry_delay import DEFAULT, RetryDelay

N = TypeVar("N", bound="np.integer[Any]")

GAP_POSITIONS_MAX = 1024
"""Due positions nearer than this are read again in one range: seeking costs more than skipping."""


class Range(NamedTuple):
    """Positions `first` to before `end`."""

    first: int
    end: int


def increasing(numbers: NDArray[N]) -> NDArray[N]:
    """The numbers in order, each once: as they mostly come."""
    return numbers if is_increasing(numbers) else np.unique(numbers)


def ranges_of(positions: Indices, gap: int = GAP_POSITIONS_MAX) -> list[Range]:
    """Increasing positions as ranges, near ones together."""
    if len(positions) == 0:
        return []
    breaks = np.flatnonzero(np.diff(positions) > gap) + 1
    firsts = positions[np.concatenate(([0], breaks))].tolist()
    lasts = positions[np.concatenate((breaks - 1, [len(positions) - 1]))].tolist()
    return [Range(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]


# Counting needs DONE to be 0.
DONE, IN_FLIGHT, DUE, RESTING = np.uint8(0), np.uint8(1), np.uint8(2), np.uint8(3)

NO_POSITIONS: Indices = np.empty(0, dtype=np.intp)

_TRIES_MAX = np.iinfo(np.uint16).max

SLOTS_FIRST = 1024
"""Length of a ring before it grows."""

LOOKED_AT_FIRST = 4096
"""Positions that are looked at for the new frontier, then twice as many: mostly it is near."""


def rotations_until_expiry(pending_timeout_s: float, retry_interval_s: float) -> int:
    """How many rotations a position outlives: the number of buckets of the original, at least 1."""
    return max(1, -int(-(pending_timeout_s * 1e6) // (retry_interval_s * 1e6)))


class PendingPositions:
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
                others. Columns (20 bytes a position) are as long as was needed so far.
            pending_timeout_s: a tree that is not complete, and that nobody has been working on for
                so long, is read again.
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
        self._rotation = self._incomplete = 0
        self._frontier = self._next = frontier
        self._state, self._attempt = np.zeros((2, self._slots), dtype=np.uint8)
        self._sent = np.zeros(self._slots, dtype=np.int64)
        self._held = np.zeros(self._slots, dtype=np.int64)
        """The rotation after the one in which somebody said last that he works on it. Mostly older
        than the next position in the slot, so it need not be forgotten."""
        self._retries = np.zeros(self._slots, dtype=np.uint16)
        self._retry_delay = retry_delay
        self.any_retried = False
        """Whether anything ever was. Until then the columns of attempts and retries are zeros, and
        nobody writes or reads them."""
        self._resting: list[tuple[float, int, int]] = []
        """A heap of ranges that rest: until when, from where to where."""

    def change_timeout(self, pending_timeout_s: float) -> None:
        """Another time-out, also for what is in flight now."""
        self._lifetime = rotations_until_expiry(pending_timeout_s, self._interval_s)

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

    def emit(self, n: int, now_s: float) -> Run:
        """Roots for the next `n` positions, first attempt. At most `room`."""
        assert 0 <= n <= self.room, "the ring is full: emit at most `room`"
        if self._next + n - self._frontier > self._slots:
            self._grow(self._next + n - self._frontier)
        sent = self._rotation_at(now_s)
        first, self._next = self._next, self._next + n
        for _, part in self._parts(first, self._next):
            self._state[part] = IN_FLIGHT
            self._sent[part] = sent
            if self.any_retried:  # else both columns are 0 all over the ring
                self._attempt[part] = 0
                self._retries[part] = 0
        self._incomplete += n
        self._check()
        return run_of_roots(self.partition, first, self._next)

    def complete(self, roots: Numbers) -> int:
        """Trees that are complete, of whichever attempt; those of other partitions are ignored.

        Returns:
            How many positions became complete.
        """
        count = 0
        for where in self._slots_of_any_attempt(roots):
            count += int(np.count_nonzero(self._state[where]))
            self._state[where] = DONE
        self._incomplete -= count
        self._advance()
        return count

    def incomplete(self, roots: Numbers) -> U64:
        """The roots that `complete` would make complete, one for each position."""
        roots = array_of(roots)
        positions, index = np.unique(positions_of(roots), return_index=True)
        signed = positions.view(np.int64)
        meant = self._mine(roots[index], signed) & (self._state[signed & self._mask] != DONE)
        found: U64 = roots[index][meant]
        return found

    def held(self, roots: Numbers, now_s: float) -> None:
        """Somebody works on these trees, of whichever attempt: they are not lost now."""
        for where in self._slots_of_any_attempt(roots):
            self._held[where] = self._rotation_at(now_s) + 1

    def overdue(self, now_s: float) -> int:
        """Positions sent longer than the pending timeout ago and not complete; from any thread."""
        sent, state = self._sent, self._state
        if not self._incomplete or len(sent) != len(state):  # the ring grows on another thread
            return 0
        late = sent + self._lifetime <= self._rotation_at(now_s)
        return int(np.count_nonzero(late & (state != DONE)))

    def expired(self, now_s: float) -> list[Range]:
        """What has become due because its pending timeout has passed, each time-out once."""
        rotation = self._rotation_at(now_s)
        if rotation == self._rotation or self._incomplete == 0:
            self._rotation = rotation
            return []
        self._rotation = rotation
        positions = self._positions(IN_FLIGHT)
        slots = positions & self._mask
        heard = np.maximum(self._sent[slots], self._held[slots])
        lost = positions[heard + self._lifetime <= rotation]
        return self._lost(lost, now_s) if len(lost) else []

    def retry_roots(self, roots: Numbers, retries_max: int, now_s: float) -> None:
        """A flow condition asks for these to be read again, `retries_max` times each at most; older
        attempts, and what is to be read again already, are ignored."""
        slots = self._slots_of(increasing(array_of(roots)))
        self.any_retried = True
        # Only of the current attempt, and only what is in flight: a second request for the same
        # failure must not count as another retry.
        wanted = slots[self._state[slots] == IN_FLIGHT]
        before = self._retries[wanted]
        self._retries[wanted] = np.minimum(before, _TRIES_MAX - 1) + np.uint16(1)
        self._attempt[wanted[before.astype(np.int64) + 1 >= retries_max]] |= np.uint8(FINAL)
        positions = ((wanted - self._frontier) & self._mask) + self._frontier
        for retries in np.unique(before).tolist():
            until_s = now_s + self._retry_delay.delay_s(retries)
            self._rest(np.sort(positions[before == retries]), until_s)

    @property
    def resting(self) -> int:
        """Positions that rest before they are read again; from any thread, about."""
        return int(np.count_nonzero(self._state == RESTING)) if self._resting else 0

    @property
    def rested_s(self) -> float:
        """When something has rested long enough; never: infinity."""
        return self._resting[0][0] if self._resting else math.inf

    def rested(self, now_s: float) -> list[Range]:
        """What has become due because it has rested long enough."""
        found: list[Indices] = []
        while self._resting and self._resting[0][0] <= now_s:
            _, first, end = heapq.heappop(self._resting)
            positions = np.arange(max(first, self._frontier), end)  # some have completed since
            found.append(positions[self._state[positions & self._mask] == RESTING])
        return self._make_due(np.unique(np.concatenate(found))) if found else []

    @property
    def waits(self) -> bool:
        """Whether nothing new may be emitted before something has rested."""
        return False

    def take_given_up(self) -> Indices:
        """Positions that have failed and count as complete, since the last time, in order."""
        return NO_POSITIONS

    def replay_all(self) -> list[Range]:
        """Make all that is not complete due: the job was re-allocated, and trees may be lost.
        Returns everything due, what was due before included."""
        self._resting.clear()
        self._make_due(self._positions(IN_FLIGHT))
        self._make_due(self._positions(RESTING))
        return self.due()

    def due(self) -> list[Range]:
        """Everything that waits to be read again."""
        return ranges_of(self._positions(DUE))

    def all_complete(self, first: int, end: int) -> bool:
        """Whether all of `[first, end)` has been emitted and is complete."""
        parts = self._parts(max(first, self._frontier), end)
        return end <= self._next and all((self._state[part] == DONE).all() for _, part in parts)

    def any_due(self, first: int, end: int) -> bool:
        """Whether `retry` would find something in `[first, end)`."""
        first, end = max(first, self._frontier), min(end, self._next)
        return any(bool((self._state[part] == DUE).any()) for _, part in self._parts(first, end))

    def retry(self, first: int, end: int, now_s: float) -> U64:
        """New roots (attempt + 1) for what is due in `[first, end)`, in order; in flight from now.
        What completed meanwhile is not among them: the segments to send again are those whose
        positions (`positions_of`) are in the roots."""
        first, end = max(first, self._frontier), min(end, self._next)
        if first >= end:
            return np.empty(0, dtype=np.uint64)
        positions = np.arange(first, end)
        positions = positions[self._state[positions & self._mask] == DUE]
        slots = positions & self._mask
        self.any_retried = True
        self._state[slots] = IN_FLIGHT
        self._sent[slots] = self._rotation_at(now_s)
        self._held[slots] = 0  # what was said of the attempt before says nothing of this one
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
        assert len(positions) <= needed <= self._slots <= self.capacity, "`room` was asked before"
        for name in ("_state", "_attempt", "_sent", "_held", "_retries"):
            column = getattr(self, name)
            longer = np.zeros(self._slots, dtype=column.dtype)
            longer[now] = column[before]
            setattr(self, name, longer)

    def _rotation_at(self, now_s: float) -> int:
        return max(self._rotation, int((now_s - self._started_s) // self._interval_s))

    def _slots_of_any_attempt(self, roots: Numbers) -> list[slice] | list[Indices]:
        """Ring slots of the roots that are of this partition and in the ring, each once."""
        run = as_run(roots)
        if run is None:
            return [self._of_any_attempt(array_of(roots))]
        if run.first >> PARTITION_SHIFT != self.partition:
            return []
        first = run.first & (POSITIONS_MAX - 1)
        end = min(first + run.count, self._next)
        return [part for _, part in self._parts(max(first, self._frontier), end)]

    def _of_any_attempt(self, roots: U64) -> Indices:
        """Ring slots of the roots that are of this partition and in the ring, each once."""
        positions = positions_of(roots).view(np.int64)
        slots: Indices = increasing(positions[self._mine(roots, positions)]) & self._mask
        return slots

    def _mine(self, roots: U64, positions: Indices) -> NDArray[np.bool_]:
        """Which of the roots are of this partition and in the ring."""
        inside = (positions >= self._frontier) & (positions < self._next)
        found: NDArray[np.bool_] = inside & (partitions_of(roots) == self.partition)
        return found

    def _slots_of(self, roots: U64) -> Indices:
        """Ring slots of those of the increasing roots that are of this partition, in the ring
        and of the current attempt."""
        positions = positions_of(roots).view(np.int64)
        slots = positions & self._mask
        attempts = (roots >> np.uint64(40)) & np.uint64(0xFF)
        found: Indices = slots[self._mine(roots, positions) & (self._attempt[slots] == attempts)]
        return found

    def _positions(self, state: np.uint8) -> Indices:
        """Positions of the ring in one state, in order."""
        found = [
            np.flatnonzero(self._state[part] == state) + first
            for first, part in self._parts(self._frontier, self._next)
        ]
        return np.concatenate(found) if found else np.empty(0, dtype=np.intp)

    def _lost(self, positions: Indices, now_s: float) -> list[Range]:
        """What becomes due because these positions, at least one, have timed out."""
        return self._make_due(positions)

    def _rest(self, positions: Indices, until_s: float) -> None:
        """Positions in flight, at least one, are to be read again later."""
        assert len(positions), "something is to rest"
        self._state[positions & self._mask] = RESTING
        for first, end in ranges_of(positions, gap=1):
            heapq.heappush(self._resting, (until_s, first, end))

    def _make_due(self, positions: Indices) -> list[Range]:
        self._state[positions & self._mask] = DUE
        return ranges_of(positions)

    def _check(self) -> None:
        """What holds between two calls."""
        span = self._next - self._frontier
        assert 0 <= self._incomplete <= span <= self._slots <= self.capacity, "a ring of this span"
        assert bool(self._incomplete) == bool(span), "the frontier is the first that is incomplete"

    def _advance(self) -> None:
        """Move the frontier up to the first position that is not complete."""
        self._to_first_incomplete()
        self._check()

    def _to_first_incomplete(self) -> None:
        if self._state[self._frontier & self._mask] != DONE:
            return
        looked = LOOKED_AT_FIRST
        while self._frontier < self._next:
            end = min(self._frontier + looked, self._next)
            for first, part in self._parts(self._frontier, end):
                incomplete = self._state[part] != DONE
                offset = int(incomplete.argmax())
                if incomplete[offset]:
                    self._frontier = first + offset
                    return
            self._frontier, looked = end, 2 * looked

    def _parts(self, first: int, end: int) -> Iterator[tuple[int, slice]]:
        """`[first, end)` as slices of the ring, each with its first position."""
        while first < end:
            start = first & self._mask
            count = min(end - first, self._slots - start)
            yield first, slice(start, start + count)
            first += count


WAITING_MAX = 256
"""Messages; of a job with more peers that work for long, some of its segments may be read again."""


class InFlightRoots:
    """The holds of one input, windowed task or acker on one peer."""

    def __init__(self) -> None:
        self._waiting: deque[Numbers] = deque(maxlen=WAITING_MAX)

    def add(self, roots: Numbers) -> None:
        """Somebody works on these trees."""
        self._waiting.append(roots)

    def take(self) -> Iterator[Numbers]:
        """All that waits, each message as increasing roots."""
        while self._waiting:
            roots = self._waiting.popleft()
            yield roots if isinstance(roots, Run) else np.unique(roots)


class OrderedPositions(PendingPositions):
    """`all-after`."""

    def complete(self, roots: Numbers) -> int:
        """Trees of the current attempts that are complete."""
        if not self.any_retried:
            return super().complete(roots)
        slots = self._slots_of(increasing(array_of(roots)))
        done = slots[self._state[slots] == IN_FLIGHT]
        self._state[done] = DONE
        self._incomplete -= len(done)
        self._advance()
        return len(done)

    def incomplete(self, roots: Numbers) -> U64:
        """The roots that `complete` would make complete."""
        roots = increasing(array_of(roots))
        attempts = (roots >> np.uint64(40)) & np.uint64(0xFF)
        positions = (roots & np.uint64((1 << 40) - 1)).view(np.int64)
        slots = positions & self._mask
        meant = self._mine(roots, positions) & (self._state[slots] == IN_FLIGHT)
        found: U64 = roots[meant & (self._attempt[slots] == attempts)]
        return found

    @property
    def waits(self) -> bool:
        """Whether something rests, behind which everything is to come."""
        return bool(self._resting)

    def replay_all(self) -> list[Range]:
        """Make everything due from the first position on that is not complete."""
        self._resting.clear()
        return self._from(self._frontier, DUE) if self._incomplete else []

    def _lost(self, positions: Indices, now_s: float) -> list[Range]:
        if self._resting:  # what comes later has to wait, and so does all that is before it
            self._rest(positions, now_s)
            return []
        return self._from(int(positions[0]), DUE)

    def _rest(self, positions: Indices, until_s: float) -> None:
        assert len(self._resting) <= 1, "all that rests is one range, up to the newest"
        first = int(positions[0])
        for until_before_s, first_before, _ in self._resting:
            first, until_s = min(first, first_before), max(until_s, until_before_s)
        self._from(first, RESTING)
        self._resting = [(until_s, first, self._next)]

    def _from(self, first: int, state: np.uint8) -> list[Range]:
        """All positions from one on are to be read again."""
        assert self._frontier <= first < self._next, (
            "what is below the frontier is never read again"
        )
        self.any_retried = True
        for _, part in self._parts(first, self._next):
            self._incomplete += int(np.count_nonzero(self._state[part] == DONE))
            self._state[part] = state
        return [Range(first, self._next)]


class ReturningPositions(PendingPositions):
    """`individual` of a source that hears of failures."""

    _given_up: Indices = NO_POSITIONS

    def take_given_up(self) -> Indices:
        """Positions that have failed and count as complete, since the last time."""
        found, self._given_up = self._given_up, NO_POSITIONS
        return np.sort(found)

    def _give_up(self, positions: Indices) -> None:
        self._state[positions & self._mask] = DONE
        self._incomplete -= len(positions)
        self._given_up = np.concatenate((self._given_up, positions))
        self._advance()

    def _rest(self, positions: Indices, until_s: float) -> None:
        self._give_up(positions)


class GivingUpPositions(ReturningPositions):
    """`none`."""

    def replay_all(self) -> list[Range]:
        """Give up all that is in flight."""
        return self._lost(self._positions(IN_FLIGHT), 0.0)

    def _lost(self, positions: Indices, now_s: float) -> list[Range]:
        self._give_up(positions)
        return []
