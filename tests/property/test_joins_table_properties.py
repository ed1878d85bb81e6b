"""Enrichment by a table gives what a plain loop gives, in both formats."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns, from_dicts, to_dicts
from onyx.joins.enrichment import Enrichment
from onyx.joins.table import Table

KEYS = (
    st.integers(-3, 3),
    st.sampled_from(["", "a", "b", "été", "x" * 70, "x" * 70 + "y"]),
    st.dates(date(2026, 1, 1), date(2026, 1, 4)),
    st.sampled_from([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]),
    st.binary(max_size=1),
    st.booleans(),
)
Rows = list[dict[str, Any]]


@st.composite
def joins(draw: st.DrawFn) -> tuple[Rows, Rows, dict[str, Any]]:
    """Rows of a table, segments, and how they are joined."""
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    names = [f"k{number}" for number in range(len(kinds))]
    key = st.fixed_dictionaries(dict(zip(names, kinds, strict=True)))
    rows = draw(st.lists(key, max_size=12))
    rows = [row | {"name": f"row {number}"} for number, row in enumerate(rows)]
    parts = {f"s{name}": st.none() | kind for name, kind in zip(names, kinds, strict=True)}
    segments = draw(st.lists(st.fixed_dictionaries(parts), max_size=12))
    segments = [each | {"n": number} for number, each in enumerate(segments)]
    versioned = draw(st.booleans())
    if versioned:
        times = st.integers(0, 4)
        rows = [row | {"since": draw(times)} for row in rows]
        segments = [each | {"time": draw(st.none() | times)} for each in segments]
    how = {
        "inner": draw(st.booleans()),
        "under": draw(st.sampled_from([None, "found"])),
        "columns": draw(st.sampled_from([None, ("name",)])),
        "at": "time" if versioned else None,
        "default": draw(st.sampled_from([{}, {"name": "nobody"}])),
    }
    return rows, segments, how


def by_loop(rows: Rows, segments: Rows, how: dict[str, Any], names: list[str]) -> Rows:
    """The join, row by row."""
    joined = []
    given_names = how["columns"] or [*(["name", "since"] if how["at"] else ["name"])]
    for segment in segments:
        key = [segment[f"s{name}"] for name in names]
        alike = [row for row in rows if [row[name] for name in names] == key and None not in key]
        if how["at"]:
            time = segment["time"]
            alike = [row for row in alike if time is not None and row["since"] <= time]
            alike.sort(key=lambda row: row["since"])
        if not alike and how["inner"]:
            continue
        none = dict.fromkeys(given_names) | how["default"]
        found = {name: alike[-1][name] for name in given_names} if alike else none
        if not rows and how["columns"] is None:
            found = dict(how["default"])
        if how["under"]:
            there = alike or how["default"]
            joined.append(segment | {"found": found if there else None})
        else:
            joined.append(segment | found)
    return joined


@given(joins())
def test_a_join_gives_what_a_loop_gives(case: tuple[Rows, Rows, dict[str, Any]]) -> None:
    rows, segments, how = case
    names = [name[1:] for name in segments[0] if name.startswith("sk")] if segments else ["k0"]
    if not segments and rows:
        names = [name for name in rows[0] if name.startswith("k")]
    table = Table("t", from_dicts(rows)[0], names, "since" if how["at"] else None)
    join = Enrichment(lambda: table, tuple(f"s{name}" for name in names), **how)
    wanted = by_loop(rows, segments, how, names)
    batches: list[Segments] = [segments, from_dicts(segments)[0]]
    for batch in batches:
        joined, kept, failures, _ = join.of(batch)
        found = to_dicts(joined) if isinstance(joined, Columns) else joined
        assert not failures
        assert found == wanted
        assert [each["n"] for each in found] == (
            list(range(len(segments))) if kept is None else np.asarray(kept).tolist()
        )


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=True), max_size=8))
def test_a_number_is_found_whatever_its_type(values: list[Any]) -> None:
    rows = [{"k": number, "name": str(number)} for number in (0, 1, -7, 2**53, 2**63 - 1)]
    table = Table("t", from_dicts(rows)[0], ["k"])
    join = Enrichment(lambda: table, ("k",))
    joined, _, failures, missed = join.of([{"k": value} for value in values])
    by_key = {row["k"]: row["name"] for row in rows}
    assert not failures
    assert isinstance(joined, list)
    assert missed == len([value for value in values if value not in by_key])
    assert [each["name"] for each in joined] == [by_key.get(value) for value in values]
