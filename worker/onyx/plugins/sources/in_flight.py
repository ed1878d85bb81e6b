"""What a source has given and the job has not processed: the messages of one partition, in memory.

Positions count segments, from the frontier on at which the partition was taken over. They are the
owner's own: what another owner had in flight at the same positions is not here, and the source
gives it again, as new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from onyx.flow.arrays import Indices
from onyx.flow.batch import U64, Segments
from onyx.plugins.sources.portions import Messages


class _Held(msgspec.Struct):
    """The messages of one portion."""

    first: int
    end: int
    runs: Sequence[Segments]
    ends: Indices
    """Behind the last position of each message."""
    left: Indices
    """Segments of each whose trees are not complete; 0 when it was handed out as done."""
    handles: list[Any]
    ids: Sequence[str]


class InFlight:
    """Bounded by the window of the partition: nothing is taken when that is full. Not
    thread-safe."""

    def __init__(self, position: int) -> None:
        self._held: deque[_Held] = deque()
        self._where: dict[str, tuple[_Held, int]] = {}
        """Messages that are not done, by their ids."""
        self.end = position
        """Behind the last position."""

    def add(self, messages: Messages) -> tuple[int, int, list[Any]]:
        """Messages that came. Returns where those that are new begin, how many were not new, and
        the handles of those that have no segments."""
        known = np.array([self._again(messages, index) for index in range(len(messages.counts))])
        again = int(np.count_nonzero(known))
        if again:
            messages = messages.without(known)
        counts = np.array(messages.counts, dtype=np.intp)
        first, self.end = self.end, self.end + messages.segments
        held = _Held(
            first,
            self.end,
            messages.runs,
            first + np.cumsum(counts),
            counts,
            list(messages.handles),
            messages.ids,
        )
        self._held.append(held)
        self._where.update(
            (id, (held, index)) for index, id in enumerate(held.ids) if counts[index]
        )
        return first, again, [held.handles[index] for index in np.flatnonzero(counts == 0).tolist()]

    def _again(self, messages: Messages, index: int) -> bool:
        """Whether a message is in flight; then its newest handle is the one that counts."""
        if not messages.ids or (found := self._where.get(messages.ids[index])) is None:
            return False
        held, number = found
        if messages.handles:
            held.handles[number] = messages.handles[index]
        return True

    def complete(self, positions: U64) -> list[Any]:
        """The trees of these positions, which rise, are complete. Returns the handles of the
        messages of which that was the last."""
        done: list[Any] = []
        for held in self._held:
            first, last = np.searchsorted(positions, [held.first, held.end])
            if first == last:
                continue
            its = positions[first:last].astype(np.intp)
            owners = np.searchsorted(held.ends, its, side="right")
            numbers, counts = np.unique(owners, return_counts=True)
            before = held.left[numbers]
            held.left[numbers] = np.maximum(before - counts, 0)
            done += self._done(held, numbers[(before > 0) & (before <= counts)])
        return done

    def passed(self, position: int) -> list[Any]:
        """All before this position is complete, and is not read again. Returns the handles of
        the messages that `complete` has not said."""
        done: list[Any] = []
        for held in self._held:
            if held.first >= position:
                break
            numbers = np.flatnonzero((held.ends <= position) & (held.left > 0))
            held.left[numbers] = 0
            done += self._done(held, numbers)
        while self._held and self._held[0].end <= position:
            self._held.popleft()
        return done

    def _done(self, held: _Held, numbers: Indices) -> list[Any]:
        if held.ids:
            for number in numbers.tolist():
                self._where.pop(held.ids[number], None)
        return [held.handles[number] for number in numbers.tolist()] if held.handles else []

    def at(self, position: int) -> tuple[int, list[Segments]] | None:
        """The portion that has a position: its first position, and its runs."""
        for held in self._held:
            if held.first <= position < held.end:
                return held.first, list(held.runs)
        return None

    def first_of(self, position: int) -> int:
        """Every position can be read from."""
        return position

    def incomplete(self) -> list[Any]:
        """The handles of all that is not processed."""
        return [
            held.handles[number]
            for held in self._held
            if held.handles
            for number in np.flatnonzero(held.left > 0).tolist()
        ]
