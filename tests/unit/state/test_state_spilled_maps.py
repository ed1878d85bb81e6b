"""A large map of one group: by entry in records, in memory, and on the local disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onyx.keystate.buckets import Holder, InMemory
from onyx.keystate.entries import in_order
from onyx.keystate.groups import Shards
from onyx.keystate.records import AddUpdates, PutEntries, SetStates
from onyx.operators.keyed.states import ENTRIES_MAX, Maps
from onyx.operators.keyed.store import KeyedStore
from onyx.state.chunks import ShardChange
from onyx.state.local.spilled import Spill
from onyx.state.log import _SLICE_VALUES, _slices
from onyx.task.state.chunks import Whole

MANY = 5_000
HELD_MAX = 100


@pytest.fixture
def spill(tmp_path: Path) -> Spill:
    return Spill(tmp_path, HELD_MAX)


def stored(holder: Holder, many: int = MANY) -> tuple[KeyedStore, Maps]:
    store = KeyedStore(Shards(lambda key: 0), holder)
    maps = store.maps("m")
    for number in range(many):
        maps.set("g", number, [number])
        if not number % 10:
            store.trim()
    store.take_changes()
    store.trim()
    return store, maps


def names(spill: Spill) -> int:
    """How many names there are on disk."""
    return len(list(spill.db.keys()))


def test_only_some_entries_of_a_map_are_in_memory(spill: Spill) -> None:
    store, maps = stored(spill)
    for number in range(0, MANY, 7):
        before = spill.held
        assert maps.get("g")[number] == [number]
        assert spill.held <= before + 2, "the group, and one entry"
        maps.set("g", number, [-number])
        store.trim()
        assert spill.held <= HELD_MAX
    assert len(maps.get("g")) == MANY
    assert sum(1 for _ in in_order(maps.get("g"))) == MANY
    assert spill.held <= HELD_MAX, "going through them leaves none"


def test_a_map_that_is_read_only_is_not_written(spill: Spill) -> None:
    store, maps = stored(spill)
    written: list[int] = []
    spill.db = _Noting(spill.db, written)  # type: ignore[assignment]
    for number in range(1_000):
        assert number in maps.get("g")
        assert maps.get("g").get(number) == [number]
        store.trim()
    assert sum(written) <= 100, "the group, now and then"


class _Noting:
    """A database that notes how much is written at once."""

    def __init__(self, db: Any, written: list[int]) -> None:
        self._db, self._written = db, written

    def write(self, batch: Any) -> None:
        self._written.append(len(batch))
        self._db.write(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_change_of_one_entry_is_one_entry_in_the_log(spill: Spill, in_memory: bool) -> None:
    store, maps = stored(InMemory() if in_memory else spill)
    maps.set("g", 7, [0])
    maps.discard("g", 8)
    maps.set("g", MANY, [1])
    assert store.take_changes() == {0: [AddUpdates("m", 0, "g", [[7, [0]], [8], [MANY, [1]]])]}


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_whole_map_is_recorded_in_pages(spill: Spill, in_memory: bool) -> None:
    store, maps = stored(InMemory() if in_memory else spill)
    maps.set("few", "a", 1)
    first, *others = store.freeze([0])(0)
    pages = [each for each in (first, *others) if isinstance(each, PutEntries)]
    assert [len(each.entries) for each in pages] == [2 * ENTRIES_MAX] * 3 + [
        2 * (MANY - 4 * ENTRIES_MAX)
    ]
    wholes = [each for each in (first, *others) if isinstance(each, SetStates)]
    assert sum(len(state) for each in wholes for state in each.states) == 2 * ENTRIES_MAX + 2
    again = KeyedStore(Shards(lambda key: 0), InMemory())
    found = again.maps("m")
    again.restore(0, [first, *others])
    assert dict(found.items()) == {"g": {n: [n] for n in range(MANY)}, "few": {"a": 1}}


def test_a_call_that_fails_leaves_nothing_to_be_recorded(spill: Spill) -> None:
    store, maps = stored(spill)
    maps.set("g", 7, [0])
    taken = maps.take("g")
    maps.set("g", "new", 1)
    maps.give_back("g", taken)
    store.trim()
    assert store.take_changes() == {0: [AddUpdates("m", 0, "g", [[7, [0]]])]}
    assert dict(in_order(maps.get("g"))) == {n: [n] for n in range(MANY)} | {7: [0]}


def test_a_map_that_is_removed_is_dropped_from_disk_when_the_call_is_through(spill: Spill) -> None:
    store, maps = stored(spill)
    assert names(spill) > MANY - HELD_MAX
    maps.take("g")
    assert names(spill) > MANY - HELD_MAX, "it may be taken back"
    maps.set("g", "new", 1)
    store.trim()
    assert (names(spill), spill.held) == (0, 1)
    assert dict(in_order(maps.get("g"))) == {"new": 1}


def test_what_was_frozen_stays_when_the_map_goes(spill: Spill) -> None:
    store, maps = stored(spill)
    whole = store.freeze([0])
    maps.remove("g")
    maps.set("g", "new", 1)
    store.trim()
    sizes = [
        len(each.states[0]) if isinstance(each, SetStates) else len(each.entries)
        for each in whole(0)
    ]
    assert sum(sizes) == 2 * MANY


def test_a_snapshot_is_read_slice_by_slice() -> None:
    read: list[int] = []

    def records(shard: int) -> Iterator[PutEntries]:
        for number in range(300):
            read.append(number)
            yield PutEntries("m", 0, "g", list(range(1_000)))

    whole = Whole({0: ShardChange(settled=3)}, records, lambda shard: [])
    slices = _slices(whole[0])
    values = 0
    for each in slices:
        values += sum(len(record.entries) for record in each.records)
        assert len(read) * 1_000 <= values + _SLICE_VALUES
        assert each.settled == 3
    assert values == 300_000
