"""Questions about a table give what a plain loop over its rows gives, on whatever pages."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.examples import examples

from onyx.flow.columns.record_batch import from_dicts
from onyx.flow.groups.keys import key_bytes
from onyx.joins.asked import AskedTable
from onyx.joins.table import Table
from onyx.keystate.extents import ALL, Extent
from onyx.keystate.selection import EVERYTHING, Selection, place_of

KEYS = (
    st.integers(-3, 3),
    st.text("ab", max_size=3),
    st.dates(date(2026, 1, 1), date(2026, 1, 4)),
    st.sampled_from([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]),
    st.binary(max_size=1),
    st.booleans(),
)
Rows = list[dict[str, Any]]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Rows, list[str], str | None]:
    """Rows, the names of their key, and that of their version."""
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    names = [f"k{number}" for number in range(len(kinds))]
    row = dict(zip(names, kinds, strict=True)) | {"since": st.integers(0, 4)}
    rows = draw(st.lists(st.fixed_dictionaries(row), max_size=12))
    rows = [each | {"name": f"row {number}"} for number, each in enumerate(rows)]
    return rows, names, draw(st.sampled_from([None, "since"]))


def table_of(rows: Rows, names: list[str], version: str | None) -> AskedTable:
    columns, _, _ = from_dicts(rows)
    return AskedTable(Table("t", columns, names, version))


def group_of(row: dict[str, Any], names: list[str]) -> Any:
    return row[names[0]] if len(names) == 1 else {name: row[name] for name in names}


def by_loop(rows: Rows, names: list[str], version: str | None) -> list[Extent]:
    """All extents, in order."""
    by_key: dict[bytes, dict[int, dict[str, Any]]] = {}
    for row in rows:
        versions = by_key.setdefault(key_bytes(group_of(row, names)), {})
        versions[row["since"] if version else 0] = row
    found = []
    for versions in by_key.values():
        times = [*sorted(versions), math.inf]
        for time, following in pairwise(times):
            row = versions[int(time)]
            bounds = (time, following - 1) if version else (-math.inf, math.inf)
            found.append(Extent(group_of(row, names), *bounds, row))
    return sorted(found, key=lambda each: place_of(each).order)


@given(tables(), st.integers(1, 5))
@settings(max_examples=examples(100), deadline=None)
def test_pages_have_each_version_once(made: tuple[Rows, list[str], str | None], size: int) -> None:
    asked, table = EVERYTHING, table_of(*made)
    seen: list[Extent] = []
    while page := table.query(asked, size):
        seen += page
        asked = replace(asked, after=place_of(page[-1]))
    assert seen == by_loop(*made)


@given(tables(), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_what_is_asked_for_is_what_a_loop_finds(
    made: tuple[Rows, list[str], str | None], data: st.DataObject
) -> None:
    rows, names, version = made
    assume(rows)
    group = group_of(data.draw(st.sampled_from(rows)), names)
    ways = [Selection(key=group)]
    if type(group) in (str, dict):
        ways.append(Selection(prefix=group))
    if type(group) in (int, str):
        ways += [Selection(key_from=group), Selection(key_to=group)]
    if version:
        time = data.draw(st.integers(0, 5))
        ways += [replace(each, time_from=time, time_to=time + 1) for each in ways]
    for asked in ways:
        meant = [each for each in by_loop(*made) if _is_meant(each, asked)]
        assert table_of(*made).query(asked) == meant


def _is_meant(extent: Extent, asked: Selection) -> bool:
    if asked.key is not ALL and key_bytes(asked.key) != key_bytes(extent.group):
        return False
    in_time = asked.has_extent(extent.lower, extent.upper)
    return in_time and (asked.key is not ALL or asked.has_group(extent.group))
