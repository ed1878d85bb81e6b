"""Questions about a state of a function: pages have each group once, whoever holds it or has held
it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.examples import examples

from onyx.codec.questions import (
    decode_extents,
    decode_place,
    decode_selection,
    encode_extents,
    encode_place,
    encode_selection,
)
from onyx.codec.values import decode_records, encode_records
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.keystate.buckets import InMemory
from onyx.keystate.groups import Shards, hashable_key
from onyx.keystate.selection import (
    EVERYTHING,
    WHOLE,
    Answer,
    Inside,
    Selection,
    begins_with,
    merge,
    place_of,
)
from onyx.model.state_types import parse_state_type
from onyx.operators.keyed import states
from onyx.operators.keyed.store import KeyedStore, OneState, extents_of
from onyx.state.local import spilled
from onyx.state.local.spilled import Spill

GROUPS = st.text("ab", max_size=3) | st.integers(-5, 5)


def restored(found: Mapping[Any, int]) -> list[OneState]:
    """The state, shard by shard, as it comes back from its log."""
    store = KeyedStore(Shards(shard_of))
    values, others = store.values("seen"), store.values("other")
    for group, value in found.items():
        values.put(hashable_key(group), value)
        others.put(hashable_key(group), -1)
    freeze = store.freeze(range(SHARDS))
    made = []
    for shard in range(SHARDS):
        records = decode_records(encode_records(list(freeze(shard))))
        one = OneState("seen", parse_state_type("value[int]"), Shards(shard_of))
        one.restore(shard, [each for each in records if getattr(each, "window", "") == "seen"])
        made.append(one)
    return made


def answered(shards: list[OneState], asked: Selection, size: int) -> Answer:
    def of(one: OneState) -> Answer:
        found = one.query(asked, size + 1)
        return Answer(found[:size], len(found) > size)

    return merge(map(of, shards), size)


@given(st.dictionaries(GROUPS, st.integers(0, 99), max_size=20), st.integers(1, 7))
@settings(max_examples=examples(60), deadline=None)
def test_pages_have_each_group_once(found: dict[Any, int], size: int) -> None:
    shards, asked = restored(found), EVERYTHING
    seen: list[tuple[Any, int]] = []
    while True:
        page = answered(shards, asked, size)
        seen += [(each.group, each.state) for each in page.extents]
        if not page.more:
            break
        asked = replace(asked, after=place_of(page.extents[-1]))
    assert dict(seen) == found
    assert len(seen) == len(found)


@given(st.dictionaries(GROUPS, st.integers(0, 99), max_size=20), GROUPS)
@settings(max_examples=examples(60), deadline=None)
def test_groups_are_found_by_key_and_by_beginning(found: dict[Any, int], group: Any) -> None:
    shards = restored(found)
    one = answered(shards, Selection(key=group), 100)
    expected_states = [found[group]] if group in found else []
    assert [each.state for each in one.extents] == expected_states
    if isinstance(group, str):
        many = answered(shards, Selection(prefix=group), 100)
        expected = {each for each in found if begins_with(each, group)}
        assert {each.group for each in many.extents} == expected


ITEMS = st.integers(-3, 9) | st.text("ab", max_size=3) | st.binary(max_size=1)
HELD = st.dictionaries(GROUPS, st.dictionaries(ITEMS, st.integers(0, 9), min_size=1), max_size=4)


@given(HELD, st.integers(1, 3), st.booleans(), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_pages_have_each_entry_of_a_map_once(
    found: dict[Any, dict[Any, int]], size: int, on_disk: bool, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "PART_MAX", 3)
        patch.setattr(spilled, "PAGE", 2)
        store = KeyedStore(Shards(shard_of), Spill(Path(folder), 1) if on_disk else InMemory())
        _in_pages(store, found, size, data)
        del store


def _in_pages(
    store: KeyedStore, found: dict[Any, dict[Any, int]], size: int, data: st.DataObject
) -> None:
    maps = store.maps("m")
    for group, items in found.items():
        for item, value in items.items():
            maps.set(hashable_key(group), item, value)
            store.trim()

    def of(asked: Selection) -> Answer:
        sent = decode_selection(encode_selection(asked))
        return Answer.of(extents_of(maps, sent, size + 1), size)

    asked = Selection()
    seen: list[tuple[Any, Any, int]] = []
    while True:
        page = of(asked)
        parts = decode_extents(encode_extents(WHOLE.parts_of(page.extents), 10_000)[0])
        seen += [(each.group, *entry) for each in parts for entry in each.state.items()]
        if not page.more:
            break
        asked = replace(asked, after=decode_place(encode_place(place_of(parts[-1]))))
    expected = [(group, *each) for group, its in found.items() for each in its.items()]
    assert len(seen) == len(expected)
    assert set(map(repr, seen)) == set(map(repr, expected))
    if found:
        group, item = data.draw(st.sampled_from(list(found))), data.draw(ITEMS)
        asked = Selection(key=group, inside=Inside((item,)))
        (one,) = asked.inside.parts_of(of(asked).extents)
        assert one.state == found[group].get(item)
