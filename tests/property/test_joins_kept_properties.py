"""What another task keeps comes to the segments of its groups, as groups are equal there."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onyx.flow.columns.record_batch import Columns, from_dicts, to_dicts
from onyx.flow.groups.keys import key_bytes
from onyx.joins.enrichment import Enrichment
from onyx.joins.kept import Kept
from onyx.windows.groups import group_value, hashable_key

VALUES = st.one_of(
    st.none(),
    st.integers(-2, 3),
    st.sampled_from([0.0, 1.0, 2.5, Decimal("1.00"), True, False, "1", "a", b"a"]),
    st.sampled_from([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]),
)
NAMES = (("word", "lang"), None)
Rows = list[dict[str, Any]]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Kept, Rows, list[tuple[Any, int]]]:
    """Segments, and groups of the other task with their states."""
    names = draw(st.sampled_from(NAMES))
    parts = 2 if names else 1
    kept = Kept("task.state", [f"k{number}" for number in range(parts)], "found", names)
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


def by_loop(kept: Kept, segments: Rows, states: list[tuple[Any, int]], names: Any) -> Rows:
    by_key = {key_bytes(key): state for key, state in states}
    found = []
    for segment in segments:
        parts = [segment[key] for key in kept.key]
        group = dict(zip(names, parts, strict=True)) if names else parts[0]
        state = None if None in parts else by_key.get(key_bytes(group))
        found.append({**segment, "found": state})
    return found


def names_of(kept: Kept) -> Any:
    return NAMES[0] if len(kept.key) == 2 else None


@given(cases())
def test_dicts_get_the_state_of_their_group_whatever_its_type_is(
    case: tuple[Kept, Rows, list[tuple[Any, int]]],
) -> None:
    kept, segments, states = case
    kept.take([hashable_key(key) for key, _ in states], [state for _, state in states])
    joined = Enrichment(lambda: kept, kept.key, columns=("found",)).of(segments)
    assert joined.failures == []
    assert joined.segments == by_loop(kept, segments, states, names_of(kept))


@given(cases())
def test_each_group_is_asked_for_once(case: tuple[Kept, Rows, list[tuple[Any, int]]]) -> None:
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
    case: tuple[Kept, Rows, list[tuple[Any, int]]],
) -> None:
    kept, segments, states = case
    columns, there, _ = from_dicts(segments)
    if not segments or there is not None:  # keys of several types are in no column
        return
    kept.take([hashable_key(key) for key, _ in states], [state for _, state in states])
    assert set(kept.keys_of(columns)) == set(kept.keys_of(to_dicts(columns)))
    joined = Enrichment(lambda: kept, kept.key, columns=("found",)).of(columns)
    assert isinstance(joined.segments, Columns)
    assert to_dicts(joined.segments) == by_loop(kept, to_dicts(columns), states, names_of(kept))


def test_a_state_of_another_type_than_the_others_fails_the_segments_of_its_group_only() -> None:
    kept = Kept("task.state", ["k"], "found")
    kept.take(["a", "b", "c"], [1, "text", 3])
    joined = Enrichment(lambda: kept, kept.key, columns=("found",)).of(
        [{"k": "a"}, {"k": "b"}, {"k": "c"}]
    )
    assert joined.segments == [{"k": "a", "found": 1}, {"k": "c", "found": 3}]
    ((index, error),) = joined.failures
    assert index == 1
    assert "join with state task.state: the state of group 'b'" in str(error)


def test_a_batch_that_finds_nothing_keeps_the_type_of_the_column() -> None:
    kept = Kept("task.state", ["k"], "found")
    kept.take(["a"], [1])
    before = kept.columns.schema
    kept.take([], [])
    assert kept.columns.schema == before
    assert kept.columns.num_rows == 0
