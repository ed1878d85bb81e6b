"""Keyed state: the same as plain dicts, whatever is recorded, snapshotted and restored, in memory
and on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.examples import examples

from onyx.codec.values import decode_records, encode_records
from onyx.flow.groups.keys import shard_of
from onyx.keystate.buckets import Holder, InMemory
from onyx.keystate.entries import in_order
from onyx.keystate.groups import GroupKey, Shards, hashable_key
from onyx.keystate.records import Record
from onyx.operators.keyed import states
from onyx.operators.keyed.store import KeyedStore
from onyx.operators.keyed.timers import CLOCKS, DAY_MS, MINUTE_MS, STEPS, Clock, Expiry, KeyTimers
from onyx.state.local import spilled
from onyx.state.local.spilled import Spill

KEYS = st.sampled_from([hashable_key(key) for key in ("a", "b", 7, None, ["x", 1], 2.5)])
NUMBERS = st.integers(-3, 3)
ITEMS = st.sampled_from([-3, 0, 7, 2**64 - 1, "", "a", "ab", "é", "\U00010000", b"", b"a", b"\xff"])
ENDS = st.none() | ITEMS
TIMES = st.one_of(st.integers(0, 5), st.integers(0, 3 * MINUTE_MS), st.integers(0, 3 * DAY_MS))
TTL_MS = 1_600


def place(entry: tuple[Any, Any]) -> tuple[int, Any]:
    return (int, str, bytes).index(type(entry[0])), entry[0]


class KeyedStoreMachine(RuleBasedStateMachine):
    """Dicts beside the states; a restart reads what was recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[int, list[bytes]] = {}
        self.values: dict[Any, Any] = {}
        self.lists: dict[Any, list[Any]] = {}
        self.maps: dict[Any, dict[Any, Any]] = {}
        self.set: dict[tuple[Any, str], tuple[Clock, int]] = {}
        self.touched: dict[Any, int] = {}
        self.now_ms = 0
        self.begin()

    def holder(self) -> Holder:
        """What has the states."""
        return InMemory()

    def begin(self) -> None:
        """Everything as it is recorded."""
        self.store = KeyedStore(Shards(shard_of), self.holder())
        self.kept = (
            self.store.values("v"),
            self.store.lists("l"),
            self.store.maps("m"),
        )
        self.timers = KeyTimers(self.store)
        self.expiry = Expiry(self.store, TTL_MS)
        for shard, parts in self.logs.items():
            for part in parts:
                self.store.restore(shard, decode_records(part))
        self.store.restored()

    @rule(key=KEYS, value=NUMBERS)
    def put_value(self, key: Any, value: int) -> None:
        self.kept[0].put(key, value)
        self.values[key] = value

    @rule(values=st.dictionaries(KEYS, NUMBERS))
    def put_values(self, values: dict[Any, int]) -> None:
        self.kept[0].put_all(list(values), list(values.values()))
        self.values |= values

    @rule(key=KEYS, which=st.integers(0, 2))
    def remove(self, key: Any, which: int) -> None:
        self.kept[which].remove(key)
        models: tuple[dict[Any, Any], ...] = (self.values, self.lists, self.maps)
        models[which].pop(key, None)

    @rule(key=KEYS, items=st.lists(NUMBERS))
    def extend(self, key: Any, items: list[int]) -> None:
        self.kept[1].extend(key, items)
        if items:
            self.lists.setdefault(key, []).extend(items)

    @rule(key=KEYS, items=st.lists(NUMBERS))
    def put_list(self, key: Any, items: list[int]) -> None:
        self.kept[1].put(key, items)
        self.lists[key] = list(items)
        if not items:
            del self.lists[key]

    @precondition(lambda self: self.lists)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(list(self.lists)))
        length = data.draw(st.integers(0, len(self.lists[key])))
        self.kept[1].cut(key, length)
        del self.lists[key][length:]
        if not length:
            del self.lists[key]

    @rule(key=KEYS, item=ITEMS, value=NUMBERS)
    def set_item(self, key: Any, item: Any, value: int) -> None:
        self.kept[2].set(key, item, value)
        self.maps.setdefault(key, {})[item] = value

    @rule(key=KEYS, items=st.dictionaries(ITEMS, NUMBERS))
    def set_items(self, key: Any, items: dict[Any, int]) -> None:
        for item, value in items.items():
            self.set_item(key, item, value)

    @rule(key=KEYS, items=st.dictionaries(ITEMS, NUMBERS), trimmed=st.booleans())
    def put_map_and_take_it_back(self, key: Any, items: dict[Any, int], trimmed: bool) -> None:
        if trimmed:
            self.store.trim()
        before = self.kept[2].take(key)
        assert key not in self.kept[2]
        for item, value in items.items():
            self.kept[2].set(key, item, value)
        assert dict(in_order(self.kept[2].get(key))) == items
        self.kept[2].give_back(key, before)

    @rule(key=KEYS, items=st.lists(ITEMS, max_size=3))
    def discard_while_iterating(self, key: Any, items: list[Any]) -> None:
        entries, before = in_order(self.kept[2].get(key)), self.maps.get(key, {}).copy()
        for item in items:
            self.discard_item(key, item)
        assert dict(entries) == before

    @rule(key=KEYS, item=ITEMS)
    def look_at_one(self, key: Any, item: Any) -> None:
        held, model = self.kept[2].get(key), self.maps.get(key, {})
        assert (item in held) == (item in model)
        assert held.get(item, "none") == model.get(item, "none")
        assert not any(other in held for other in (None, 0.5, (), 2**70))
        assert (0.0 in held) == (False in held) == (0 in model)

    @rule(key=KEYS, first=ENDS, end=ENDS, most=st.none() | st.integers(1, 3))
    def look_at_a_range(self, key: Any, first: Any, end: Any, most: int | None) -> None:
        if first is not None and end is not None and type(first) is not type(end):
            return
        of = None if first is end is None else type(end if first is None else first)
        expected = [
            (item, value)
            for item, value in sorted(self.maps.get(key, {}).items(), key=place)
            if of in (None, type(item))
            and (first is None or item >= first)
            and (end is None or item < end)
        ]
        found = list(in_order(self.kept[2].get(key), first, end, most))
        assert found == expected[:most]

    @rule(key=KEYS, item=ITEMS)
    def discard_item(self, key: Any, item: Any) -> None:
        self.kept[2].discard(key, item)
        self.maps.get(key, {}).pop(item, None)
        if not self.maps.get(key, True):
            del self.maps[key]

    @rule(key=KEYS, name=st.sampled_from("xy"), clock=st.sampled_from(CLOCKS), due_ms=TIMES)
    def set_timer(self, key: Any, name: str, clock: Clock, due_ms: int) -> None:
        self.timers.set(key, name, clock, due_ms)
        self.set[key, name] = clock, due_ms

    @rule(key=KEYS, name=st.sampled_from("xy"))
    def delete_timer(self, key: Any, name: str) -> None:
        self.timers.delete(key, name)
        self.set.pop((key, name), None)

    @rule(clock=st.sampled_from(CLOCKS), now_ms=TIMES, again=st.booleans())
    def fire(self, clock: Clock, now_ms: int, again: bool) -> None:
        fired = []
        for timer in self.timers.take_due(clock, now_ms):
            fired.append(timer.due_ms)
            assert self.set.pop((timer.key, timer.name)) == (clock, timer.due_ms)
            if again and len(fired) < 3:
                self.set_timer(timer.key, timer.name, clock, timer.due_ms + 1)
        assert fired == sorted(fired)
        assert all(at != clock or due > now_ms for at, due in self.set.values())
        earliest = self.timers.earliest_ms(clock)
        left = [due for at, due in self.set.values() if at == clock]
        assert not left or (earliest is not None and earliest <= min(left))

    @rule(key=KEYS)
    def touch(self, key: Any) -> None:
        self.expiry.touch(key, self.now_ms)
        self.touched[key] = self.now_ms

    @rule(later_ms=st.sampled_from([1, 50, 700, TTL_MS, 10 * TTL_MS]))
    def expire(self, later_ms: int) -> None:
        self.now_ms += later_ms
        for key in self.expiry.take(self.now_ms):
            assert self.touched.pop(key) + TTL_MS <= self.now_ms
        step_ms = TTL_MS // STEPS
        assert all(at + TTL_MS + step_ms > self.now_ms for at in self.touched.values())

    @rule()
    def append(self) -> None:
        """A chunk."""
        for shard, records in self.store.take_changes().items():
            self.logs.setdefault(shard, []).append(encode_records(records))
        self.store.trim()

    @rule()
    def snapshot(self) -> None:
        """A chunk with everything."""
        shards = list(range(128))
        self.store.take_changes()
        whole = self.store.freeze(shards)
        found = {shard: list(whole(shard)) for shard in shards}
        self.logs = {shard: [encode_records(its)] for shard, its in found.items() if its}

    @rule()
    def restart(self) -> None:
        """With all that was changed in the log."""
        self.append()
        self.begin()

    @rule()
    def trim(self) -> None:
        self.store.trim()

    @invariant()
    def agrees(self) -> None:
        values, lists, maps = self.kept
        keys = ["a", "b", 7, None, GroupKey(["x", 1]), GroupKey(2.5)]
        for key in keys:
            assert values.get(key, "none") == self.values.get(key, "none")
            assert list(lists.get(key)) == self.lists.get(key, [])
            assert len(maps.get(key)) == len(self.maps.get(key, {}))
        assert {key: dict(each) for key, each in maps.items()} == self.maps
        assert (len(values), len(lists), len(maps)) == (
            len(self.values), len(self.lists), len(self.maps),
        )  # fmt: skip


class SpilledMachine(KeyedStoreMachine):
    """Nearly everything is on disk, and of a map little beside its group or in one record."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(spilled, "TOGETHER_MAX", 2)
        self.patch.setattr(spilled, "PAGE", 4)
        self.patch.setattr(states, "ENTRIES_MAX", 2)
        super().__init__()

    def holder(self) -> Holder:
        self.spill = Spill(Path(self.folder.name), 2)
        return self.spill

    @rule()
    def bound(self) -> None:
        self.store.trim()
        assert self.spill.held <= 2

    def teardown(self) -> None:
        self.patch.undo()
        del self.store, self.kept, self.timers, self.expiry, self.spill
        self.folder.cleanup()


KeyedStoreMachine.TestCase.settings = settings(max_examples=examples(60), deadline=None)
SpilledMachine.TestCase.settings = settings(max_examples=examples(25), deadline=None)
test_states_are_those_of_plain_dicts = KeyedStoreMachine.TestCase
test_states_on_disk_are_those_of_plain_dicts = SpilledMachine.TestCase


def test_what_is_frozen_does_not_follow_later_changes() -> None:
    store = KeyedStore(Shards(lambda key: 0))
    lists, maps = store.lists("l"), store.maps("m")
    lists.extend("a", [1])
    maps.set("a", "x", 1)
    whole = store.freeze([0])
    lists.extend("a", [2])
    maps.set("a", "x", 2)
    fresh = KeyedStore(Shards(lambda key: 0))
    again = fresh.lists("l"), fresh.maps("m")
    records: list[Record] = list(whole(0))
    fresh.restore(0, records)
    assert again[0].get("a") == [1]
    assert again[1].get("a") == {"x": 1}
