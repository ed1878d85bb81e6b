"""What another task keeps comes to the segments of its groups, as groups are equal there."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.flow.columns.record_batch import Columns, from_dicts, to_dicts
from onyx.flow.groups.keys import key_bytes
from onyx.joins.kept import ForeignState, Reading
from onyx.keystate.groups import group_value, hashable_key

VALUES = st.one_of(
    st.none(),
    st.integers(-2, 3),
    st.sampled_from([0.0, 1.0, 2.5, Decimal("1.00"), True, False, "1", "a", b"a"]),
    st.sampled_from([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]),
)
NAMES = (("word", "lang"), None)
Rows = list[dict[str, Any]]


@st.composite
def cases(draw: st.DrawFn) -> tuple[ForeignState, Rows, list[tuple[Any, int]]]:
    """Segments, and groups of the other task with their states."""
    names = draw(st.sampled_from(NAMES))
    parts = 2 if names else 1
    kept = ForeignState("task.state", [f"k{number}" for number in range(parts)], "found", names)
    rows = draw(st.lists(st.tuples(*[VALUES] * parts), max_size=8))
    segments = [
        {"n": n, **{f"k{number}": part for number, part in enumerate(row)}}
        for n, row in enumerate(rows)
    ]
    keys = [dict(zip(names, row, strict=True)) if names else row[0] for row in rows]
    others = draw(st.lists(VALUES, max_size=3)) if names is None else []
    chosen = [each for each in [*keys, *others] if draw(st.booleans())]
    states = {key_bytes(key): (key, number) for number, key in enumerate(chosen)}
    return kept, segments, list(states.values())


def by_loop(kept: ForeignState, segments: Rows, states: list[tuple[Any, int]], names: Any) -> Rows:
    by_key = {key_bytes(key): state for key, state in states}
    found = []
    for segment in segments:
        parts = [segment[key] for key in kept.key]
        group = dict(zip(names, parts, strict=True)) if names else parts[0]
        state = None if None in parts else by_key.get(key_bytes(group))
        found.append({**segment, "found": state})
    return found


def names_of(kept: ForeignState) -> Any:
    return NAMES[0] if len(kept.key) == 2 else None


@given(cases())
def test_dicts_get_the_state_of_their_group_whatever_its_type_is(
    case: tuple[ForeignState, Rows, list[tuple[Any, int]]],
) -> None:
    kept, segments, states = case
    kept.take([hashable_key(key) for key, _ in states], [state for _, state in states])
    joined = Reading(kept).of(segments)
    assert joined.failures == []
    assert joined.segments == by_loop(kept, segments, states, names_of(kept))


@given(cases())
def test_each_group_is_asked_for_once(
    case: tuple[ForeignState, Rows, list[tuple[Any, int]]],
) -> None:
    kept, segments, _ = case
    names = names_of(kept)
    wanted = set()
    for segment in segments:
        parts = [segment[key] for key in kept.key]
        if None not in parts:
            wanted.add(key_bytes(dict(zip(names, parts, strict=True)) if names else parts[0]))
    groups = [key_bytes(group_value(key)) for key in kept.keys_of(segments)]
    assert len(groups) == len(set(groups))
    assert set(groups) == wanted


@given(cases())
def test_columns_ask_and_get_what_dicts_do(
    case: tuple[ForeignState, Rows, list[tuple[Any, int]]],
) -> None:
    kept, segments, states = case
    columns, there, _ = from_dicts(segments)
    if not segments or there is not None:  # keys of several types are in no column
        return
    kept.take([hashable_key(key) for key, _ in states], [state for _, state in states])
    assert set(kept.keys_of(columns)) == set(kept.keys_of(to_dicts(columns)))
    joined = Reading(kept).of(columns)
    assert isinstance(joined.segments, Columns)
    assert to_dicts(joined.segments) == by_loop(kept, to_dicts(columns), states, names_of(kept))


ANY = st.recursive(
    st.one_of(VALUES, st.floats(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.lists(ANY, min_size=1, max_size=5), ANY)
def test_dicts_get_each_state_and_the_default_as_they_are(states: list[Any], default: Any) -> None:
    kept = ForeignState("task.state", ["k"], "found", default=default)
    kept.take(list(range(len(states))), states)
    joined = Reading(kept).of([{"k": key} for key in range(len(states) + 1)])
    assert joined.failures == []
    found = [each["found"] for each in joined.segments]
    assert repr(found) == repr([*states, default])
    shared = [state for state, got in zip(states, found, strict=False) if state is got]
    assert not any(isinstance(state, list | dict) for state in shared)


def test_keys_that_are_lists_or_dicts_are_groups_of_dicts() -> None:
    kept = ForeignState("task.state", ["k"], "found")
    segments: Rows = [{"k": [1, 2]}, {"k": {"a": 1}}, {"k": {"b": 1}}]
    keys = kept.keys_of(segments)
    kept.take(keys[:2], ["list", "dict"])
    assert [each["found"] for each in Reading(kept).of(segments).segments] == ["list", "dict", None]


@pytest.mark.parametrize("keys", [[[1]], [{"a": 1}]])
def test_columns_of_lists_or_structs_are_refused_as_keys(keys: list[Any]) -> None:
    columns = from_dicts([{"k": key} for key in keys])[0]
    ((_, error),) = Reading(ForeignState("task.state", ["k"], "found")).of(columns).failures
    assert "cannot be keys of a join: use text, numbers or times" in str(error)


def test_in_columns_a_state_of_another_type_than_the_others_fails_the_segments_of_its_group() -> (
    None
):
    kept = ForeignState("task.state", ["k"], "found")
    kept.take(["a", "b", "c"], [1, "text", 3])
    joined = Reading(kept).of(from_dicts([{"k": "a"}, {"k": "b"}, {"k": "c"}])[0])
    assert to_dicts(joined.segments) == [{"k": "a", "found": 1}, {"k": "c", "found": 3}]
    ((index, error),) = joined.failures
    assert index == 1
    assert "join with state task.state: the state of group 'b'" in str(error)


def test_in_columns_a_default_of_another_type_fails_the_segments_that_would_get_it() -> None:
    kept = ForeignState("task.state", ["k"], "found", default=0)
    kept.take(["a"], [[1, 2]])
    joined = Reading(kept).of(from_dicts([{"k": "a"}, {"k": "b"}])[0])
    assert to_dicts(joined.segments) == [{"k": "a", "found": [1, 2]}]
    ((index, error),) = joined.failures
    assert index == 1
    assert "default is 0, and the states have type list<item: int64>" in str(error)


@pytest.mark.parametrize("of", [list, lambda rows: from_dicts(rows)[0]], ids=["dicts", "columns"])
def test_segments_fail_whose_state_cannot_be_given(of: Any) -> None:
    kept = ForeignState("task.state", ["k"], "found")
    kept.take(["a"], [1], {"b": "it is too large"})
    joined = Reading(kept).of(of([{"k": "a"}, {"k": "b"}]))
    ((index, error),) = joined.failures
    assert index == 1
    assert str(error) == "join with state task.state: it is too large"


def test_a_batch_that_finds_nothing_keeps_the_type_of_the_column() -> None:
    kept = ForeignState("task.state", ["k"], "found")
    kept.take(["a"], [1])
    before = kept.columns.schema
    kept.take([], [])
    assert kept.columns.schema == before
    assert kept.columns.num_rows == 0
