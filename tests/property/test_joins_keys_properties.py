"""Keys of joins of streams are equal exactly where they are one group, so that it does not matter
how many peers there are."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from onyx.flow.columns.values import to_array
from onyx.flow.groups.keys import key_bytes
from onyx.joins.keys import apart

FEW = st.integers(0, 2)
VALUES = st.one_of(
    FEW,
    FEW.map(float),
    FEW.map(Decimal),
    st.sampled_from([0.5, -0.5, 2.0**63, -(2.0**63), 1e30, float("inf")]),
    st.sampled_from([2**63, 2**64 - 1, -(2**63)]),
    st.sampled_from(list(map(Decimal, ["0.5", "-0.50", "0.00", "0.1", "1e30", 2**63, -(2**63)]))),
    st.booleans(),
    st.sampled_from(["", "0", "1", "a", "true or false 1", "bytes a"]),
    st.sampled_from([b"", b"0", b"1", b"a", b"\xffbytes a"]),
    FEW.map(lambda day: date(1970, 1, 1) + timedelta(days=day)),
    FEW.map(lambda number: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)),
    FEW.map(lambda number: time(microsecond=number)),
)


def compared(value: Any) -> Any:
    column = apart(to_array([value]))
    return column.type, column.view(pa.binary())[0] if column.type == pa.string() else column[0]


@given(VALUES, VALUES)
def test_keys_are_equal_exactly_where_they_are_one_group(one: Any, other: Any) -> None:
    assert (compared(one) == compared(other)) == (key_bytes(one) == key_bytes(other))


def test_null_stays_null_whatever_the_kind() -> None:
    for kind in (pa.bool_(), pa.binary(), pa.date32(), pa.int64(), pa.string(), pa.null()):
        assert apart(pa.nulls(2, kind)).null_count == 2
