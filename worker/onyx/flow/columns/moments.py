"""Moments of columns that Python has no date or datetime for: it has the years 1 to 9999, in UTC.

An Arrow timestamp reaches from the year -290308 to 294247. Of a zone that is not UTC a day at each
end is left out, because local time may be in another year.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.flow.arrays import Indices, Mask
from onyx.flow.columns.compute import pc
from onyx.flow.columns.types import UTC_NAME

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
FIRST_DAY = (date.min - _EPOCH.date()).days
LAST_DAY = (date.max - _EPOCH.date()).days
_DAY_US = 86_400_000_000
"""Local time is less than a day from UTC."""


def is_utc(kind: pa.DataType) -> bool:
    """Whether it is the type of times in UTC."""
    return bool(kinds.is_timestamp(kind) and kind.tz in (UTC_NAME, "+00:00"))


def is_within(numbers: pa.Array, low: int, high: int) -> bool:
    """Whether all numbers that are not null are at least `low` and at most `high`."""
    found = pc.min_max(numbers).as_py()
    return found["min"] is None or bool(low <= found["min"] and found["max"] <= high)


def beyond(column: pa.Array) -> Mask | None:
    """The rows that are or hold a moment that Python does not have; None if none does."""
    return _beyond(column) if _has_moments(column.type) else None


def within_years(column: pa.Array) -> pa.Array:
    """The column, if Python has all of its moments.

    Raises:
        pa.ArrowInvalid: it has not.
    """
    if beyond(column) is not None:
        raise pa.ArrowInvalid("a moment outside of the years 1 to 9999 in UTC")
    return column


@lru_cache(maxsize=256)
def _has_moments(kind: pa.DataType) -> bool:
    if kinds.is_list(kind):
        return _has_moments(kind.value_type)
    if kinds.is_struct(kind):
        return any(_has_moments(each.type) for each in kind.fields)
    return bool(kinds.is_timestamp(kind) or kinds.is_date32(kind))


def _beyond(column: pa.Array) -> Mask | None:
    kind = column.type
    if kinds.is_date32(kind):
        return _outside(column.cast(pa.int32()), FIRST_DAY, LAST_DAY)
    if kinds.is_timestamp(kind):
        margin = 0 if is_utc(kind) else _DAY_US
        return _outside(column.cast(pa.int64()), FIRST_US + margin, LAST_US - margin)
    return _nested(column, _beyond)


def _nested(column: pa.Array, look: Callable[[pa.Array], Mask | None]) -> Mask | None:
    """The rows of lists and structs that hold what is looked for; None if none does."""
    kind = column.type
    if kinds.is_list(kind):
        inner = look(column.flatten())
        if inner is None:
            return None
        return _mask_of(pc.list_parent_indices(column).to_numpy()[inner], len(column))
    if kinds.is_struct(kind):
        found = [mask for each in column.flatten() if (mask := look(each)) is not None]
        return np.logical_or.reduce(found) if found else None
    return None


def _mask_of(indices: Sequence[int] | Indices, count: int) -> Mask:
    mask = np.zeros(count, dtype=np.bool_)
    mask[indices] = True
    return mask


def _outside(numbers: pa.Array, low: int, high: int) -> Mask | None:
    if is_within(numbers, low, high):
        return None
    outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
    mask: Mask = outside.fill_null(False).to_numpy(zero_copy_only=False)
    return mask
