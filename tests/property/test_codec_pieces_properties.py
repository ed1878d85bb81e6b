"""Any columns, cut anywhere, are the same when the pieces are put together."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.codec.pieces import cutter, put_together
from onyx.errors import SegmentError

VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint8(), st.integers(0, 255)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=5)),
    (pa.binary(), st.binary(max_size=5)),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.duration("us"), st.integers(-(2**40), 2**40)),
    (pa.timestamp("us", "UTC"), st.integers(0, 2**50)),
    (pa.decimal128(20, 3), st.decimals(-(10**9), 10**9, places=3)),
    (pa.null(), st.none()),
]


def nested(
    inner: st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    lists = inner.map(lambda each: (pa.list_(each[0]), st.lists(or_none(each[1]), max_size=3)))
    structs = st.tuples(inner, inner).map(
        lambda each: (
            pa.struct([("a", each[0][0]), ("b", each[1][0])]),
            st.fixed_dictionaries({"a": or_none(each[0][1]), "b": or_none(each[1][1])}),
        )
    )
    return lists | structs


def or_none(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    types = draw(
        st.lists(
            st.recursive(st.sampled_from(VALUES), nested, max_leaves=3), min_size=1, max_size=3
        )
    )
    count = draw(st.integers(0, 12))
    columns = [
        pa.array(draw(st.lists(or_none(values), min_size=count, max_size=count)), kind)
        for kind, values in types
    ]
    rows = pa.RecordBatch.from_arrays(columns, names=[f"c{n}" for n in range(len(types))])
    first = draw(st.integers(0, count))
    return rows.slice(first, draw(st.integers(0, count - first)))


@given(batches(), st.data())
def test_pieces_are_the_rows_that_they_were_cut_of(
    rows: pa.RecordBatch, data: st.DataObject
) -> None:
    ends = sorted(data.draw(st.lists(st.integers(0, rows.num_rows), max_size=4)))
    bounds = [0, *ends, rows.num_rows]
    cut = cutter(rows)
    pieces = [cut(first, end) for first, end in pairwise(bounds)]
    found = put_together(rows.schema, pieces, rows.num_rows)
    assert found.schema == rows.schema
    assert found.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("count", [1, 3])
def test_other_rows_than_were_announced_are_no_pieces(count: int) -> None:
    rows = pa.record_batch({"text": ["a", "b"], "n": [1, 2]})
    with pytest.raises(SegmentError, match="2 where"):
        put_together(rows.schema, [cutter(rows)(0, 2)], count)


def test_pieces_of_other_columns_are_no_pieces() -> None:
    rows = pa.record_batch({"text": ["a", "b"]})
    with pytest.raises(SegmentError, match="1 pieces are not 2 rows of the columns"):
        put_together(pa.schema({"n": pa.int64()}), [cutter(rows)(0, 2)], 2)


def test_numbers_that_are_none_stay_so() -> None:
    rows = pa.record_batch({"n": [math.nan, None]})
    (first, second) = put_together(rows.schema, [cutter(rows)(0, 2)], 2)["n"].to_pylist()
    assert (math.isnan(first), second) == (True, None)
