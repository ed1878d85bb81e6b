"""The parts of a table find what the whole table finds, whatever is in it and however little of it
fits into memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from onyx.flow.columns.record_batch import Columns, from_dicts, to_dicts
from onyx.joins.shares import Dealing
from onyx.joins.table import Table
from onyx.model.job import CatalogEntry, LookupJoin
from onyx.tables.dealt import DealtTable

Row = dict[str, Any]
IDS = st.one_of(st.integers(-3, 9), st.sampled_from([2**63 - 1, -(2**63)]))
ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": IDS, "place": st.sampled_from("abc"), "since": st.integers(0, 5)},
        optional={"name": st.text(max_size=3), "rank": st.none() | st.integers(0, 9)},
    ),
    max_size=30,
)


@settings(max_examples=examples(60), deadline=None)
@given(
    reads=st.lists(ROWS, max_size=4),
    asked=st.lists(st.tuples(IDS, st.sampled_from("abcd"), st.integers(-1, 6)), min_size=1),
    parts=st.integers(1, 7),
    several=st.booleans(),
    versions=st.booleans(),
    large=st.booleans(),
)
def test_a_part_finds_what_the_whole_table_finds(
    reads: list[list[Row]],
    asked: list[tuple[int, str, int]],
    parts: int,
    several: bool,
    versions: bool,
    large: bool,
) -> None:
    key: Any = ("id", "place") if several else "id"
    by: Any = ("town", "user") if several else "user"
    looked: Any = ("user", "town") if several else "user"
    version_key = "since" if versions else None
    entry = CatalogEntry("t", "table", key=key, version_key=version_key, partitioned=True)
    task = CatalogEntry("w", "function", group_by_key=by, join=LookupJoin(looked, "t"))
    batches = [columns(rows) for rows in reads if rows]
    rows = [row for rows in reads for row in rows]
    dealing = Dealing(entry, task, parts)
    dealt = DealtTable(entry, dealing, 1 << 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onyx.tables.dealt.ROWS_A_READ", 5)
        dealt.deal(iter(batches))
    if not large:
        dealt._bytes_max = max(dealt._sizes_bytes)
    names = key if several else (key,)
    whole = Table("t", columns(rows), names, version_key) if rows else None
    for user, town, at in asked:
        keys = [pa.array([user], pa.int64()), pa.array([town])][: len(names)]
        when = pa.array([at], pa.int64()) if versions else None
        given_keys = Columns(pa.RecordBatch.from_arrays(keys, names=list(names)))
        (number,) = dealing.parts_of(given_keys).tolist()
        assert found(dealt.part(number), keys, when) == found(whole, keys, when)
        held = sum(dealt._sizes_bytes[each] for each in dealt._held)
        assert held <= dealt._bytes_max
    assert sum(len(dealt.part(each).rows) for each in range(parts)) == len(rows)


def columns(rows: list[Row]) -> Columns:
    made, *_ = from_dicts(rows)
    return made


def found(table: Table | None, keys: list[pa.Array], at: pa.Array | None) -> Row | None:
    if table is None or not len(table.rows):
        return None
    (index,) = table.find(keys, at)
    if index < 0:
        return None
    (row,) = to_dicts(table.rows.take(np.array([index])))
    return {name: value for name, value in row.items() if value is not None}
