"""Columns of list views, whose values may lie in any order, become lists."""

import pyarrow as pa
import pytest

from onyx.flow.columns.record_batch import Columns, to_dicts

INT, TEXT = pa.int64(), pa.string_view()
SOME = [[1, 2], None, [3], [], [4, None]]


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize(
    ("values", "make"),
    [
        (SOME, lambda view: view(INT)),
        ([[["a"], None], None, [[], ["b", None]]], lambda view: view(view(TEXT))),
        ([[[1]], None, [[2, 3], None]], lambda view: pa.list_(view(INT))),
        ([{"a": [1]}, None, {"a": None}], lambda view: pa.struct([("a", view(INT))])),
        ([[{"a": 1}], None, [None, {"a": 2}]], lambda view: view(pa.struct([("a", INT)]))),
        ([["x", "y"], None, ["x"]], lambda view: view(pa.dictionary(pa.int8(), pa.string()))),
        ([[[1], [2]], None, [None, [3]]], lambda view: pa.list_(view(INT), 2)),
    ],
)
def test_a_list_view_is_the_list_that_it_shows(view, first, values, make):
    column = pa.array(values, make(view)).slice(first)
    found = Columns.of(pa.record_batch({"k": column}))
    found.record_batch.validate(full=True)
    assert [row["k"] for row in to_dicts(found)] == values[first:]


def test_maps_may_hold_views():
    values = [[("a", [1])], None, [("b", None), ("c", [2, 3])]]
    column = pa.array(values, pa.map_(pa.string(), pa.list_view(INT)))
    for first in range(3):
        found = to_dicts(Columns.of(pa.record_batch({"k": column.slice(first)})))
        assert [row["k"] for row in found] == [
            each and [{"key": key, "value": value} for key, value in each]
            for each in values[first:]
        ]


def test_views_may_overlap_and_lie_in_any_order():
    offsets, sizes = pa.array([2, 0, 1, 0], pa.int32()), pa.array([1, 3, 0, 2], pa.int32())
    column = pa.ListViewArray.from_arrays(offsets, sizes, pa.array([7, 8, 9]))
    found = to_dicts(Columns.of(pa.record_batch({"k": column})))
    assert [row["k"] for row in found] == [[9], [7, 8, 9], [], [7, 8]]
