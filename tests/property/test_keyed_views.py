"""What a function does with its states: the same as with plain values, lists and dicts, and nothing
if it fails."""

from __future__ import annotations

import copy
import gc
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from onyx.codec.values import decode_records, encode_records
from onyx.flow.groups.keys import shard_of
from onyx.keystate.buckets import Holder, InMemory
from onyx.keystate.groups import Shards, hashable_key
from onyx.model.state_types import parse_state_type
from onyx.operators.keyed.definition import KeyedFunction
from onyx.operators.keyed.function_calls import DeclaredStates
from onyx.operators.keyed.store import KeyedStore
from onyx.operators.keyed.timers import KeyTimers
from onyx.state.local import spilled
from onyx.state.local.spilled import Spill

DECLARED = {
    "v": "value",
    "n": "value[int]",
    "l": "list",
    "m": "map",
    "s": "map[str, int]",
    "d": "map[str, list[struct[a: int]]]",
}
KEYS = ["a", 7, None, ["x", 1]]
VALUES = st.one_of(st.integers(-3, 3), st.none(), st.lists(st.integers(0, 2), max_size=2))
INDICES = st.integers(-2, 3)

Step = Callable[[Any], object]
"""Something that is done to states, whether they are views or what they stand for."""


class Plain:
    """The states of a group as Python has them."""

    def __init__(self) -> None:
        self.v: Any = None
        self.n: int | None = None
        self.l: list[Any] = []
        self.m: dict[Any, Any] = {}
        self.s: dict[str, int] = {}
        self.d: dict[str, list[dict[str, int]]] = {}
        self.timers: dict[str, int] = {}

    def set_timer(self, name: str, at_ms: int) -> None:
        self.timers[name] = at_ms

    def delete_timer(self, name: str) -> None:
        self.timers.pop(name, None)

    def timer(self, name: str) -> int | None:
        return self.timers.get(name)


def seen(state: Any) -> list[Any]:
    timers = [state.timer(name) for name in "xy"]
    maps = [entries(each) for each in (state.m, state.s, state.d)]
    return [state.v, state.n, list(state.l), maps, timers]


def entries(its: Any) -> list[tuple[Any, Any]]:
    """The entries of a map in the order of keys, whichever way it is gone through."""
    if type(its) is dict:
        return sorted(its.items(), key=lambda each: ((int, str, bytes).index(type(each[0])), each))
    found = list(its.items())
    assert found == list(zip(its, its.values(), strict=True)) == [(key, its[key]) for key in its]
    assert len(found) == len(its)
    return found


def _pop(state: Any, index: int) -> None:
    if -len(state.l) <= index < len(state.l):
        state.l.pop(index)


def _put_item(state: Any, index: int, value: Any) -> None:
    if -len(state.l) <= index < len(state.l):
        state.l[index] = value


def _assign(name: str) -> Callable[[Any], Step]:
    return lambda value: lambda state: setattr(state, name, copy.deepcopy(value))


LISTS = st.lists(VALUES, max_size=3)
MAPS = st.dictionaries(st.sampled_from(["a", 1, b"k"]), VALUES, max_size=3)
STEPS: st.SearchStrategy[Step] = st.one_of(
    VALUES.map(_assign("v")),
    st.integers(-3, 3).map(_assign("n")),
    LISTS.map(_assign("l")),
    MAPS.map(_assign("m")),
    VALUES.map(lambda value: lambda state: state.l.append(value)),
    LISTS.map(lambda values: lambda state: state.l.extend(values)),
    st.tuples(INDICES, VALUES).map(lambda its: lambda state: state.l.insert(*its)),
    st.tuples(INDICES, VALUES).map(lambda its: lambda state: _put_item(state, *its)),
    INDICES.map(lambda index: lambda state: _pop(state, index)),
    INDICES.map(lambda index: lambda state: state.l.__delitem__(slice(index))),
    st.just(lambda state: state.l.clear()),
    st.just(lambda state: state.l.reverse()),
    MAPS.map(lambda items: lambda state: state.m.update(items)),
    st.just(lambda state: state.m.clear()),
    st.just(lambda state: state.s.update({**dict(state.s), "c": len(state.s)})),
    st.just(lambda state: [state.m.pop(key) for key in list(state.m) if key != "a"]),
    st.sampled_from("ab").map(lambda key: lambda state: state.m.pop(key, None)),
    st.sampled_from("ab").map(
        lambda key: lambda state: state.s.__setitem__(key, state.s.get(key, 0) + 1)
    ),
    st.just(lambda state: state.s.clear()),
    st.tuples(
        st.sampled_from("ab"), st.lists(st.fixed_dictionaries({"a": INDICES}), max_size=2)
    ).map(lambda its: lambda state: state.d.__setitem__(*copy.deepcopy(its))),
    st.tuples(st.sampled_from("xy"), st.integers(0, 5)).map(
        lambda its: lambda state: state.set_timer(*its)
    ),
    st.sampled_from("xy").map(lambda name: lambda state: state.delete_timer(name)),
)
CALLS = st.lists(
    st.tuples(st.integers(0, len(KEYS) - 1), st.lists(STEPS, max_size=5), st.booleans()),
    max_size=12,
)


class Held:
    """The states of a task, restored from what was recorded."""

    def __init__(self, logs: dict[int, list[bytes]], holder: Holder | None = None) -> None:
        self.logs = logs
        self.store = KeyedStore(Shards(shard_of), holder)
        declared = {name: parse_state_type(each) for name, each in DECLARED.items()}
        its = KeyedFunction(
            task="t", states=declared, ttl_ms=None, on_timer=None, fed_by=frozenset()
        )
        self.states = DeclaredStates(its, self.store, KeyTimers(self.store), (), lambda: 0)
        for shard, parts in logs.items():
            for part in parts:
                self.store.restore(shard, decode_records(part))
        self.store.restored()

    def record(self) -> None:
        for shard, records in self.store.take_changes().items():
            self.logs.setdefault(shard, []).append(encode_records(records))

    def seen(self, key: Any) -> list[Any]:
        self.states.state.turn_to(hashable_key(key))
        return seen(self.states.state)


class Failed(Exception):
    """The function has failed."""


@settings(max_examples=examples(150), deadline=None)
@given(CALLS)
def test_states_are_those_of_python_and_a_call_that_fails_leaves_nothing(
    calls: list[tuple[int, list[Step], bool]],
) -> None:
    _agrees(calls, InMemory)


@settings(max_examples=examples(60), deadline=None)
@given(CALLS)
def test_states_on_disk_are_those_of_python_as_well(
    calls: list[tuple[int, list[Step], bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled, "TOGETHER_MAX", 1)
        patch.setattr(spilled, "PAGE", 2)
        try:
            _agrees(calls, lambda: Spill(Path(folder), 1))
        finally:
            gc.collect()  # the class that states have for a task is in a cycle


def _agrees(calls: list[tuple[int, list[Step], bool]], holder: Callable[[], Holder]) -> None:
    held, models = Held({}, holder()), [Plain() for _ in KEYS]
    for number, (index, steps, fails) in enumerate(calls):
        model = copy.deepcopy(models[index])

        def fn(
            _: Any, state: Any, steps: list[Step] = steps, model: Plain = model, fails: bool = fails
        ) -> None:
            for step in steps:
                step(state)
                step(model)
                assert seen(state) == seen(model)
            if fails:
                raise Failed

        try:
            held.states.call(fn, hashable_key(KEYS[index]), None)
            models[index] = model
        except Failed:
            pass
        held.store.trim()
        assert [held.seen(key) for key in KEYS] == [seen(each) for each in models]
        if number % 3 == 2:
            held.record()
    held.record()
    again = Held(held.logs, holder())
    assert [again.seen(key) for key in KEYS] == [seen(each) for each in models]


def test_what_comes_out_of_a_state_is_a_copy() -> None:
    held = Held({})
    given = {"deep": [1]}

    def fn(_: Any, state: Any) -> None:
        state.v = given
        state.l.append(given)
        state.m["k"] = given
        given["deep"].append(2)
        state.v["deep"].append(3)
        state.l[0]["deep"].append(3)
        next(iter(state.l))["deep"].append(3)
        state.m["k"]["deep"].append(3)
        assert state.v == state.l[0] == state.m["k"] == {"deep": [1]}

    held.states.call(fn, "a", None)
