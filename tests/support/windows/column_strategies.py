"""Columns of all types that segments may have, for property tests."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from onyx.flow.columns.record_batch import Columns

_INTEGERS = ((pa.int64(), 64), (pa.int8(), 8))
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_MOMENTS = st.datetimes(timezones=st.just(UTC))
_LATER_MOMENTS = st.integers(0, 10**9).map(lambda at_s: datetime.fromtimestamp(at_s, UTC))
_DECIMALS = st.decimals(-(10**9), 10**9, places=6, allow_nan=False)


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((kind, _integers(bits)) for kind, bits in _INTEGERS),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), _FLOATS),
    (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=8)),
    (pa.binary(), st.binary(max_size=8)),
    (pa.null(), st.none()),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us", "UTC"), _MOMENTS),
    (pa.timestamp("us", "Europe/Berlin"), _LATER_MOMENTS),
    (pa.duration("us"), st.timedeltas(timedelta(-(10**6)), timedelta(10**6))),
    (pa.decimal128(20, 6), _DECIMALS),
    (pa.list_(pa.int64()), st.lists(_integers(64), max_size=3)),
    (
        pa.struct([("at", pa.timestamp("us", "UTC")), ("x", pa.float64())]),
        st.fixed_dictionaries({"at": _MOMENTS, "x": _FLOATS}),
    ),
]
"""A strategy of values for each type."""
EDGES = {
    pa.date32(): [date.min, date.max],
    pa.timestamp("us", "UTC"): [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)],
    pa.duration("us"): [timedelta(microseconds=-(2**62)), timedelta(microseconds=2**62)],
    pa.time64("us"): [time.min, time.max],
    pa.decimal128(20, 6): [Decimal("0.000000"), Decimal("-0.000001")],
}
"""The first and last values that Python has."""
KEYS = st.text(max_size=4) | st.sampled_from(["a", "b", "null", '"', "\\", "\n"])


def arrays(kind: pa.DataType, values: st.SearchStrategy[Any], size: int) -> Any:
    """Of so many values, some of them null."""
    found = st.lists(st.none() | values, min_size=size, max_size=size)
    return found.map(lambda each: pa.array(each, kind))


@st.composite
def columns(draw: Any, keys: st.SearchStrategy[str] = KEYS, keys_min: int = 0) -> Columns:
    """Any columns."""
    names = draw(st.lists(keys, min_size=keys_min, max_size=4, unique=True))
    size = draw(st.integers(0, 6))
    kinds = [draw(st.sampled_from(VALUES)) for _ in names]
    found = [draw(arrays(kind, values, size)) for kind, values in kinds]
    if not names:
        return Columns(pa.RecordBatch.from_struct_array(pa.array([{}] * size, pa.struct([]))))
    return Columns.of(pa.RecordBatch.from_arrays(found, names=names))
