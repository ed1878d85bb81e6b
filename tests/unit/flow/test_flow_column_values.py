"""A column as values of Python: the same as pyarrow gives, only faster."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.windows.column_strategies import EDGES, VALUES, arrays

from onyx.flow.columns.values import python_values

TYPES = [pytest.param(kind, values, id=str(kind)) for kind, values in VALUES]


@pytest.mark.parametrize(("kind", "values"), TYPES)
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_values_are_those_of_pyarrow(kind: pa.DataType, values: Any, data: Any) -> None:
    column = data.draw(arrays(kind, values, data.draw(st.integers(0, 5))))
    found = python_values(column)
    assert found == column.to_pylist()
    assert list(map(type, found)) == list(map(type, column.to_pylist()))
    assert list(map(str, found)) == list(map(str, column.to_pylist()))
    assert python_values(column.slice(1)) == found[1:]


@pytest.mark.parametrize("kind", EDGES, ids=str)
def test_the_first_and_last_values_of_python_are_kept(kind: pa.DataType) -> None:
    assert python_values(pa.array(EDGES[kind], kind)) == EDGES[kind]


def test_times_in_utc_have_the_zone_of_python() -> None:
    column = pa.array([0, None], pa.timestamp("us", "UTC"))
    assert [each and each.tzinfo for each in python_values(column)] == [UTC, None]


@pytest.mark.parametrize(
    "late",
    [
        pa.array([2**60], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([2**30], pa.int32()).cast(pa.date32()),
    ],
    ids=["timestamp", "date"],
)
def test_what_python_has_no_date_for_is_an_error(late: pa.Array) -> None:
    with pytest.raises((OverflowError, ValueError)):
        python_values(late)
