"""Extents as a record batch."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from onyx.client.window_view import record_batch
from onyx.keystate.extents import Extent


def column(name: str, *values: Any) -> pa.Array:
    extents = [Extent(each, 0, 9, each) for each in values]
    return record_batch(extents, in_time=False).column(name)


@pytest.mark.parametrize("name", ["key", "state"])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((1, 2), pa.int64()),
        ((1, 2.5), pa.float64()),
        (("a", None), pa.string()),
        (({"a": 1}, {"a": 2}), pa.struct([("a", pa.int64())])),
        (([1], [2, 3]), pa.list_(pa.int64())),
    ],
)
def test_a_column_has_the_type_that_holds_all_values(
    name: str, values: tuple[Any, ...], kind: pa.DataType
) -> None:
    found = column(name, *values)
    assert found.type == kind
    assert found.to_pylist() == list(values)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((1, "a", None), ["1", "a", None]),
        ((2**70, 1), [str(2**70), "1"]),
        (({("a", 1): 2}, 5), ['{"[\\"a\\",1]":2}', "5"]),
    ],
)
def test_values_that_no_type_holds_are_text(values: tuple[Any, ...], shown: list[Any]) -> None:
    assert column("state", *values).to_pylist() == shown


def test_bounds_of_a_global_window_are_null_and_others_numbers_or_times() -> None:
    assert record_batch([Extent(1, -math.inf, math.inf, 1)], False)["from"].to_pylist() == [None]
    assert record_batch([Extent(1, 0, 1.5, 1)], False)["to"].type == pa.float64()
    assert record_batch([Extent(1, 0, 9, 1)], False)["to"].type == pa.int64()
    assert record_batch([Extent(1, 0, 9, 1)], True)["to"].type == pa.timestamp("ms", tz="UTC")


def test_session_keys_are_a_column_where_sessions_have_them() -> None:
    batch = record_batch([Extent(1, 0, 9, 1, ("s",))], False, by_session_key=True)
    assert batch.schema.names == ["key", "from", "to", "sessionKey", "state"]
    assert record_batch([], False).num_rows == 0


def test_values_are_never_taken_for_others_of_another_type() -> None:
    assert column("key", b"a", "a").type == pa.string()
    assert column("key", 5, date(1970, 1, 6)).to_pylist() == ["5", '"1970-01-06"']
