"""What the windows of an input do about a position that has failed, where that is not to read it
again by itself.

`all-after`: it is read again with all that was emitted after it, complete or not, in order, so that
who gets the partition in order gets it in order again. Invariant: what is sent is the position
after the one sent before, or one that was sent before. Three things follow. Nothing new is emitted
while a position rests. Positions that wait to be read again are one range, up to the newest. A
completion counts only if it is of the current attempt: an older one says nothing of what is to be
sent again.

`none`: it counts as complete, and is counted.

`individual` of a source that hears of failures: what asks for a retry counts as complete, because
the source gives it again at another position. What was lost is still read again from here.
"""

from __future__ import annotations

import numpy as np

from onyx.base.runs import Numbers, array_of
from onyx.ledger.lineage import U64, Indices
from onyx.ledger.pending import DONE, DUE, IN_FLIGHT, NO_POSITIONS, RESTING, PendingWindow
from onyx.ledger.ranges import Range, increasing


class OrderedWindow(PendingWindow):
    """`all-after`."""

    def complete(self, roots: Numbers) -> int:
        """Trees of the current attempts that are complete."""
        if not self._any_retried:
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
        first = int(positions[0])
        for until_before_s, first_before, _ in self._resting:
            first, until_s = min(first, first_before), max(until_s, until_before_s)
        self._from(first, RESTING)
        self._resting = [(until_s, first, self._next)]

    def _from(self, first: int, state: np.uint8) -> list[Range]:
        """All positions from one on are to be read again."""
        self._any_retried = True
        for _, part in self._parts(first, self._next):
            self._incomplete += int(np.count_nonzero(self._state[part] == DONE))
            self._state[part] = state
        return [Range(first, self._next)]


class ReturningWindow(PendingWindow):
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


class GivingUpWindow(ReturningWindow):
    """`none`."""

    def replay_all(self) -> list[Range]:
        """Give up all that is in flight."""
        return self._lost(self._positions(IN_FLIGHT), 0.0)

    def _lost(self, positions: Indices, now_s: float) -> list[Range]:
        self._give_up(positions)
        return []
