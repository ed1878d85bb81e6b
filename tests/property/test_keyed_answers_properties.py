"""Questions about a state of a function: pages have each group once, whoever holds it or has held
it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.examples import examples

from onyx.codec.records import decode_records, encode_records
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.keystate.answers import Answer, merge
from onyx.keystate.groups import Shards, hashable_key
from onyx.keystate.selection import EVERYTHING, Selection, begins_with, place_of
from onyx.model.state_types import parse_state_type
from onyx.operators.keyed.answers import OneState
from onyx.operators.keyed.store import KeyedStore

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
        records = decode_records(encode_records(freeze(shard)))
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
