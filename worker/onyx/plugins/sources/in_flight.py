"""What a source has given and the job has not processed: the messages of one partition, in memory.

Positions count segments, from the frontier on at which the partition was taken over. They are the
owner's own: what another owner had in flight at the same positions is not here, and the source
gives it again, as new.

A message is done when the trees of all of its segments are complete, or at once when one of them is
given back to the source: then all of it comes again. So a message with a segment that failed for
good and another that may succeed comes again first, until only the former is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import field

from onyx.flow.arrays import Indices
from onyx.flow.batch import U64, Segments
from onyx.plugins.sources.portions import Messages


class Done(msgspec.Struct):
    """Messages of which all trees are complete."""

    processed: list[Any] = field(default_factory=list)
    """Their handles."""
    refused: list[tuple[Any, str]] = field(default_factory=list)
    """Handles of those of which segments have failed for good, and why."""


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
    deliveries: list[int]
    """How often each was given; empty: nobody counts."""
    heard_s: float
    """When the source has heard of them last, or has given them."""
    failures: dict[int, str] = field(default_factory=dict)
    """Messages of which a segment has failed for good, and why."""


class InFlight:
    """Bounded by the window of the partition: nothing is taken when that is full. Not
    thread-safe."""

    def __init__(self, position: int) -> None:
        self._held: deque[_Held] = deque()
        self._where: dict[str, tuple[_Held, int]] = {}
        """Messages that are not done, by their ids."""
        self.end = position
        """Behind the last position."""

    def add(self, messages: Messages, now_s: float = 0.0) -> tuple[int, int, list[Any]]:
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
            list(messages.deliveries),
            now_s,
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
        if messages.deliveries:
            held.deliveries[number] = messages.deliveries[index]
        return True

    def complete(self, positions: U64) -> Done:
        """The trees of these positions, which rise, are complete. Returns the messages of which
        that was the last."""
        done = Done()
        for held, numbers, counts in self._messages(positions):
            before = held.left[numbers]
            held.left[numbers] = np.maximum(before - counts, 0)
            self._done(held, numbers[(before > 0) & (before <= counts)], done)
        return done

    def passed(self, position: int) -> Done:
        """All before this position is complete, and is not read again. Returns the messages that
        `complete` has not said."""
        done = Done()
        for held in self._held:
            if held.first >= position:
                break
            numbers = np.flatnonzero((held.ends <= position) & (held.left > 0))
            held.left[numbers] = 0
            self._done(held, numbers, done)
        while self._held and self._held[0].end <= position:
            self._held.popleft()
        return done

    def has_failed(self, position: int, why: str) -> None:
        """A segment that is in flight has failed for good; its tree will be complete."""
        found = self._messages(np.array([position], dtype=np.uint64))
        for held, numbers, _ in found:
            held.failures.setdefault(int(numbers[0]), why)

    def given_back(self, positions: U64) -> list[tuple[Any, int]]:
        """These positions, which rise, are to come again from the source: the handles of their
        messages, which are done with that, and how often each was given."""
        found: list[tuple[Any, int]] = []
        for held, numbers, _ in self._messages(positions):
            numbers = numbers[held.left[numbers] > 0]
            held.left[numbers] = 0
            self._forget(held, numbers)
            given = held.deliveries or [1] * len(held.handles)
            found += [
                (held.handles[number], given[number])
                for number in (numbers.tolist() if held.handles else ())
            ]
        return found

    def _messages(self, positions: U64) -> list[tuple[_Held, Indices, Indices]]:
        """The messages of positions, which rise, and how many of these each has."""
        found: list[tuple[_Held, Indices, Indices]] = []
        for held in self._held:
            first, last = np.searchsorted(positions, [held.first, held.end])
            if first == last:
                continue
            its = positions[first:last].astype(np.intp)
            owners = np.searchsorted(held.ends, its, side="right")
            found.append((held, *np.unique(owners, return_counts=True)))
        return found

    def _done(self, held: _Held, numbers: Indices, done: Done) -> None:
        self._forget(held, numbers)
        if not held.handles:
            return
        if not held.failures:
            done.processed += [held.handles[number] for number in numbers.tolist()]
            return
        for number in numbers.tolist():
            why = held.failures.pop(number, None)
            if why is None:
                done.processed.append(held.handles[number])
            else:
                done.refused.append((held.handles[number], why))

    def _forget(self, held: _Held, numbers: Indices) -> None:
        for number in numbers.tolist() if held.ids else ():
            self._where.pop(held.ids[number], None)

    def at(self, position: int) -> tuple[int, list[Segments]] | None:
        """The portion that has a position: its first position, and its runs."""
        for held in self._held:
            if held.first <= position < held.end:
                return held.first, list(held.runs)
        return None

    def first_of(self, position: int) -> int:
        """Every position can be read from."""
        return position

    def incomplete(self, heard_before_s: float | None = None) -> list[Any]:
        """The handles of all that is not processed.

        Args:
            heard_before_s: only of what the source has not heard of since.
        """
        return [
            held.handles[number]
            for held in self._held
            if held.handles and (heard_before_s is None or held.heard_s < heard_before_s)
            for number in np.flatnonzero(held.left > 0).tolist()
        ]

    def heard(self, before_s: float, now_s: float) -> None:
        """The source has heard of all of which it had not heard since `before_s`."""
        for held in self._held:
            if held.heard_s < before_s:
                held.heard_s = now_s
