"""Timers of keys: each has a name, a clock and a time, and is state like any other.

A key has at most one timer of a name: setting it again moves it. For each key and clock with a
timer `DueKeys` has a time that is not after the earliest one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, Literal, NamedTuple

from onyx.keystate.names import TIMERS
from onyx.operators.keyed.dues import DueKeys
from onyx.operators.keyed.store import KeyedStore

Clock = Literal["event-time", "processing-time"]
CLOCKS: Final[tuple[Clock, ...]] = ("event-time", "processing-time")
_NUMBERS: Final = {clock: number for number, clock in enumerate(CLOCKS)}


class Timer(NamedTuple):
    """A timer that is due."""

    key: Any
    """The key in the form that states have (`keystate.groups.hashable_key`)."""
    name: str
    clock: Clock
    due_ms: int


class Timers:
    """All timers of a task on one peer."""

    def __init__(self, store: KeyedStore) -> None:
        self._shards = store.shards
        self._timers = store.maps(TIMERS)
        """By key: for each name the time and the index of the clock."""
        self._dues = {clock: DueKeys(store.shards, store.holder) for clock in CLOCKS}
        store.upon_restored(self._restored)

    def get(self, key: Any, name: str) -> tuple[Clock, int] | None:
        """The timer of a key: its clock and when it is due."""
        found = self._timers.get(key).get(name)
        return None if found is None else (CLOCKS[found[1]], found[0])

    def set(self, key: Any, name: str, clock: Clock, due_ms: int) -> None:
        """Set a timer of a key, or move it."""
        self.swap(key, name, (clock, due_ms))

    def delete(self, key: Any, name: str) -> None:
        """A key has no such timer any more."""
        self._timers.discard(key, name)

    def swap(
        self, key: Any, name: str, timer: tuple[Clock, int] | None
    ) -> tuple[Clock, int] | None:
        """Set a timer of a key, or delete it; what it was before."""
        its = self._timers.get(key)
        before = its.get(name)
        if timer is None:
            self._timers.discard(key, name)
        else:
            clock, due_ms = timer
            number = _NUMBERS[clock]
            first = all(due_ms < due for due, at in its.values() if at == number)
            self._timers.set(key, name, [due_ms, number])
            if first:
                self._dues[clock].put(due_ms, key)
        return None if before is None else (CLOCKS[before[1]], before[0])

    def earliest_ms(self, clock: Clock) -> int | None:
        """When `take_due` has something to do; None: there is no timer."""
        return self._dues[clock].earliest_ms()

    def take_due(self, clock: Clock, now_ms: int) -> Iterator[Timer]:
        """Timers that are due by now, in the order of their times; they are there no more.
        Meanwhile others may be set, moved and deleted: what is due by now comes as well."""
        dues = self._dues[clock]
        for due_ms, key in dues.take(now_ms):
            for name, (at_ms, _) in self._of_clock(key, clock):
                if at_ms == due_ms and self.get(key, name) == (clock, due_ms):
                    self.delete(key, name)
                    yield Timer(key, name, clock, due_ms)
            left = self._earliest(key, clock)
            if left is not None:
                dues.put(left, key)

    def take_all(self, shards: Collection[int]) -> Iterator[Timer]:
        """All timers of some shards, each key's in the order of their times; they are there no
        more."""
        for key in list(self._timers.keys()):
            if self._shards[key] not in shards:
                continue
            for name, (due_ms, clock) in sorted(self._timers.get(key).items(), key=_by_time):
                if self.get(key, name) == (CLOCKS[clock], due_ms):
                    self.delete(key, name)
                    yield Timer(key, name, CLOCKS[clock], due_ms)

    def _of_clock(self, key: Any, clock: Clock) -> list[tuple[str, list[int]]]:
        number = CLOCKS.index(clock)
        return [(name, its) for name, its in self._timers.get(key).items() if its[1] == number]

    def _earliest(self, key: Any, clock: Clock) -> int | None:
        return min((due_ms for _, (due_ms, _) in self._of_clock(key, clock)), default=None)

    def _restored(self) -> None:
        for key, its in self._timers.items():
            for due_ms, clock in its.values():
                self._dues[CLOCKS[clock]].put(due_ms, key)


def _by_time(timer: tuple[str, list[int]]) -> tuple[int, str]:
    return timer[1][0], timer[0]
