"""Python values as a column of a type, without losing anything, and a column as Python values.

pyarrow converts some values in silence: 2.5 to the integer 2, a datetime to its date, text to
bytes, and a dict to a struct without the keys that the struct lacks. So a column takes the type of
its values first and is cast then, and only where nobody has to guess: a number to another number
that is equal, ISO 8601 text to a date or
timestamp, and the same within lists and structs.

The other way, pyarrow takes 2 to 7 us for each time, date and decimal, so these are made otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from onyx.flow.columns.compute import pc
from onyx.flow.columns.types import UTC_NAME

MISMATCH = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)
"""What is raised for values that a type cannot hold."""
_MOMENTS, _NUMBERS = (date, datetime, time, timedelta), (int, float, Decimal)
_APART: tuple[set[Any], ...] = (
    {str, bytes},
    {date, datetime},
    {bool, float},
    *({moment, number} for moment in _MOMENTS for number in _NUMBERS),
)
"""Types of which pyarrow makes one: 5 beside a date is the sixth day of 1970."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
FIRST_DAY = (date.min - _EPOCH.date()).days
LAST_DAY = (date.max - _EPOCH.date()).days
_LEAST = -(2**63)
"""What numpy takes for a time that is none."""


def to_array(values: Sequence[Any], kind: pa.DataType | None = None) -> pa.Array:
    """A column of these values.

    Args:
        kind: None: a type that holds all of them.

    Raises:
        MISMATCH: there is no such type, or `kind` does not hold them.
    """
    array = pa.array(values)
    _require_alike(values, array.type)
    if kind is None or array.type.equals(kind):
        return array
    _check(kind, array.type)
    # An int64 is taken to have all digits that it may have, which few decimals hold.
    return pa.array(values, kind) if kinds.is_decimal(kind) else array.cast(kind)


def cast_values(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as a column of another type.

    Raises:
        MISMATCH: it does not hold them.
    """
    if column.type.equals(kind):
        return column
    _check(kind, column.type)
    return column.cast(kind)


def _require_alike(values: Sequence[Any], kind: pa.DataType) -> None:
    """Checks the kinds of values that pyarrow has taken as `kind`, all the way down."""
    found = set(map(type, values))
    if len(found) > 1 and any(apart <= found for apart in _APART):
        names = " and ".join(sorted(each.__name__ for each in found))
        raise pa.ArrowTypeError(f"one column cannot hold {names}")
    if kinds.is_list(kind):
        within = [each for each in values if each is not None]
        _require_alike(list(chain.from_iterable(within)), kind.value_type)
    elif kinds.is_struct(kind):
        within = [each for each in values if each is not None]
        for field in kind.fields:
            _require_alike([each.get(field.name) for each in within], field.type)


def _check(kind: pa.DataType, given: pa.DataType) -> None:
    if not _holds(kind, given):
        raise pa.ArrowTypeError(f"{kind} does not hold {given}")


def _holds(kind: pa.DataType, given: pa.DataType) -> bool:
    """Whether values of type `given` may be cast to `kind` if they are equal there."""
    if given.equals(kind) or kinds.is_null(given):
        return True
    if _is_number(kind):
        return _is_number(given)
    if kinds.is_timestamp(kind):
        return bool(kinds.is_timestamp(given) or kinds.is_string(given))
    if kinds.is_date(kind):
        return bool(kinds.is_string(given))
    if kinds.is_list(kind) and kinds.is_list(given):
        return _holds(kind.value_type, given.value_type)
    if kinds.is_struct(kind) and kinds.is_struct(given):
        mine = {each.name: each.type for each in kind.fields}
        return all(
            each.name in mine and _holds(mine[each.name], each.type) for each in given.fields
        )
    return False


def _is_number(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind))


def python_values(column: pa.Array) -> list[Any]:
    """The values as Python has them; a datetime in UTC has `datetime.UTC` itself.

    Raises:
        OverflowError, ValueError: Python has no such date or time.
    """
    kind = column.type
    if kinds.is_integer(kind) or kinds.is_float64(kind):
        return _plain(column) if not column.null_count else _listed(column)
    if is_utc(kind) and is_within(column.cast(pa.int64()), FIRST_US, LAST_US):
        return _each(_EPOCH.__add__, _plain(column.view(pa.duration("us"))))
    if kinds.is_date32(kind) and is_within(column.cast(pa.int32()), FIRST_DAY, LAST_DAY):
        return _plain(column)
    if kinds.is_duration(kind) and is_within(column.cast(pa.int64()), _LEAST + 1, -_LEAST - 1):
        return _plain(column)
    if kinds.is_decimal(kind):
        return _each(Decimal, _listed(column.cast(pa.string())))
    if kinds.is_time64(kind):
        return _each(time.fromisoformat, _listed(column.cast(pa.string())))
    return _listed(column)


def is_utc(kind: pa.DataType) -> bool:
    """Whether it is the type of times in UTC."""
    return bool(kinds.is_timestamp(kind) and kind.tz in (UTC_NAME, "+00:00"))


def is_within(numbers: pa.Array, low: int, high: int) -> bool:
    """Whether all numbers that are not null are at least `low` and at most `high`."""
    found = pc.min_max(numbers).as_py()
    return found["min"] is None or bool(low <= found["min"] and found["max"] <= high)


def _each(convert: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    if None in values:
        return [None if each is None else convert(each) for each in values]
    return list(map(convert, values))


def _plain(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _listed(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values
