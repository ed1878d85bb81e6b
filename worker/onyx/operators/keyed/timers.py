"""What is due of keys: the timers that functions set, and states that nobody has changed for long.

A timer has a name, a clock and a time, and is state like any other. A key has at most one timer of
a name: setting it again moves it. For each key and clock with a timer `DueKeys` has a time that is
not after the earliest one.

In `DueKeys` what is due soon is in a heap, and what is due later in slots of a minute or of a day,
which are buckets: with `ONYX_STATE_MEMORY_EXTENTS_MAX` they are on the local disk. A slot that has
begun is opened. Each slot has a key once, with the earliest time: whoever looks then finds what
else the key has, and puts it here again. So a key whose time moves on and on costs nothing until
the first time.

When the states of a key expire is recorded for each key. It is rounded up, so that a key that
changes all the time is recorded anew a few times in the period, and the states go a little later
than they could.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import heappop, heappush
from typing import Any, Final, Literal, NamedTuple

from onyx.keystate.buckets import Bucket, BucketForm, Holder
from onyx.keystate.dues import Dues
from onyx.keystate.groups import Shards
from onyx.keystate.records import TIMERS, TOUCHED
from onyx.operators.keyed.store import KeyedStore
from onyx.reports.measures import StateMeasures

Clock = Literal["event-time", "processing-time"]
CLOCKS: Final[tuple[Clock, ...]] = ("event-time", "processing-time")
_NUMBERS: Final = {clock: number for number, clock in enumerate(CLOCKS)}


MINUTE_MS = 60_000
DAY_MS = 86_400_000
_NEVER = 2**63
_FORM = BucketForm(lambda: _NEVER, lambda due: due, lambda key, due: due, is_plain=True)
STEPS = 16
"""How often in the period a key is recorded that changes all the time, at most."""


class DueTimer(NamedTuple):
    """A timer that is due."""

    key: Any
    """The key in the form that states have (`keystate.groups.hashable_key`)."""
    name: str
    clock: Clock
    due_ms: int


class KeyTimers:
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

    def measures(self, groups: int) -> StateMeasures:
        """How many keys have timers, and how many groups have a state. From any thread."""
        found = [due for clock in CLOCKS if (due := self.earliest_ms(clock)) is not None]
        keys = len(self._timers)
        return StateMeasures(0, groups, keys, min(found, default=None) if keys else None)

    def earliest_ms(self, clock: Clock) -> int | None:
        """When `take_due` has something to do; None: there is no timer."""
        return self._dues[clock].earliest_ms()

    def take_due(self, clock: Clock, now_ms: int) -> Iterator[DueTimer]:
        """Timers that are due by now, in the order of their times; they are there no more.
        Meanwhile others may be set, moved and deleted: what is due by now comes as well."""
        dues = self._dues[clock]
        for due_ms, key in dues.take(now_ms):
            assert due_ms <= now_ms, "nothing fires before its time"
            for name, (at_ms, _) in self._of_clock(key, clock):
                if at_ms == due_ms and self.get(key, name) == (clock, due_ms):
                    self.delete(key, name)
                    yield DueTimer(key, name, clock, due_ms)
            left = self._earliest(key, clock)
            if left is not None:
                dues.put(left, key)

    def take_all(self, shards: Collection[int]) -> Iterator[DueTimer]:
        """All timers of some shards, each key's in the order of their times; they are there no
        more."""
        for key in list(self._timers.keys()):
            if self._shards[key] not in shards:
                continue
            for name, (due_ms, clock) in sorted(self._timers.get(key).items(), key=_by_time):
                if self.get(key, name) == (CLOCKS[clock], due_ms):
                    self.delete(key, name)
                    yield DueTimer(key, name, CLOCKS[clock], due_ms)

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


class DueKeys:
    """Keys of one clock. Not recorded: whoever has them says it again after a restart."""

    def __init__(self, shards: Shards, holder: Holder) -> None:
        self._soon: Dues[Any] = Dues()
        self._minutes = _Slots(MINUTE_MS, shards, holder)
        self._days = _Slots(DAY_MS, shards, holder)

    def put(self, due_ms: int, key: Any) -> None:
        """A key is due at this time, unless it is so before."""
        if due_ms // MINUTE_MS <= self._minutes.opened:
            self._soon.put_earliest(key, due_ms)
        elif due_ms // DAY_MS <= self._days.opened:
            self._minutes.put(due_ms, key)
        else:
            self._days.put(due_ms, key)

    def earliest_ms(self) -> int | None:
        """When `take` has something to do: perhaps only to open a slot. From any thread."""
        found = (self._soon.not_before(), self._minutes.begins_ms(), self._days.begins_ms())
        return min((int(each) for each in found if each is not None), default=None)

    def take(self, now_ms: int) -> Iterator[tuple[int, Any]]:
        """Keys that are due by now, earliest first, each with its time. Meanwhile others may be
        put here."""
        while True:
            for due_ms, key in self._days.open(now_ms):
                self.put(due_ms, key)
            for due_ms, key in self._minutes.open(now_ms):
                self.put(due_ms, key)
            earliest = self._soon.earliest()
            if earliest is None or earliest > now_ms:
                return
            key = next(self._soon.take(earliest))
            yield int(earliest), key


class _Slots:
    """Keys by slots of one width."""

    def __init__(self, width_ms: int, shards: Shards, holder: Holder) -> None:
        self._width_ms = width_ms
        self._shards = shards
        self._holder = holder
        self._buckets: dict[int, Bucket] = {}
        self._numbers: list[int] = []
        """A heap."""
        self.opened = -_NEVER
        """The last slot that was opened: what is due in it or before is put somewhere else."""

    def put(self, due_ms: int, key: Any) -> None:
        """A key is due in a slot that was not opened."""
        number = due_ms // self._width_ms
        assert number > self.opened, "a slot that was opened gets nothing more"
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = self._holder.bucket(_FORM, self._shards)
            heappush(self._numbers, number)
        if due_ms < bucket[key]:
            bucket[key] = due_ms

    def begins_ms(self) -> int | None:
        """When the next slot begins."""
        return self._numbers[0] * self._width_ms if self._numbers else None

    def open(self, now_ms: int) -> Iterator[tuple[int, Any]]:
        """What is in the slots that have begun, which are gone then."""
        while self._numbers and self._numbers[0] * self._width_ms <= now_ms:
            number = heappop(self._numbers)
            assert number > self.opened, "slots are opened in order, each once"
            self.opened = number
            bucket = self._buckets.pop(self.opened)
            for key, due_ms in bucket.items():
                yield due_ms, key
            bucket.free()


class Expiry:
    """When the keys of a task are due, by the clock of the worker."""

    def __init__(self, store: KeyedStore, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._step_ms = max(ttl_ms // STEPS, 1)
        self._touched = store.values(TOUCHED)
        self._dues = DueKeys(store.shards, store.holder)
        store.upon_restored(self._restored)

    def touch(self, key: Any, now_ms: int) -> None:
        """A state of a key has changed."""
        due_ms = self._due_ms(now_ms)
        before = self._touched.get(key)
        if before == due_ms:
            return
        self._touched.put(key, due_ms)
        if before is None:
            self._dues.put(due_ms, key)

    def earliest_ms(self) -> int | None:
        """When `take` has something to do."""
        return self._dues.earliest_ms()

    def take(self, now_ms: int) -> Iterator[Any]:
        """Keys that are due by now, which are to lose their states."""
        for _, key in self._dues.take(now_ms):
            due_ms = self._touched.get(key)
            if due_ms is None:
                continue
            if due_ms > now_ms:
                self._dues.put(due_ms, key)
                continue
            self._touched.remove(key)
            yield key

    def _due_ms(self, now_ms: int) -> int:
        return -(-(now_ms + self._ttl_ms) // self._step_ms) * self._step_ms

    def _restored(self) -> None:
        for key, due_ms in self._touched.items():
            self._dues.put(due_ms, key)
