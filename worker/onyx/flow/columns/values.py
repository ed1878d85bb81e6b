"""Python values as a column of a type, without losing anything, and a column as Python values.

pyarrow converts some values in silence: 2.5 to the integer 2, a datetime to its date, text to
bytes, and a dict to a struct without the keys that the struct lacks. So a column takes the type of
its values first and is cast then (`casts`), and only where nobody has to guess.

The other way, pyarrow takes 2 to 7 us for each time, date and decimal, so these are made otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from onyx.flow.columns.casts import cast
from onyx.flow.columns.moments import (
    FIRST_DAY,
    FIRST_US,
    LAST_DAY,
    LAST_US,
    is_utc,
    is_within,
    within_years,
)

MISMATCH = (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, OverflowError)
"""What is raised for values that a type cannot hold; pyarrow's TypeError is Python's, too."""
_MOMENTS, _NUMBERS = (date, datetime, time, timedelta), (int, float, Decimal)
_APART: tuple[set[Any], ...] = (
    {str, bytes},
    {date, datetime},
    {bool, float},
    *({moment, number} for moment in _MOMENTS for number in _NUMBERS),
)
"""Types of which pyarrow makes one: 5 beside a date is the sixth day of 1970."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST = -(2**63)
"""What numpy takes for a time that is none."""


def to_array(values: Sequence[Any], kind: pa.DataType | None = None) -> pa.Array:
    """A column of these values.

    Args:
        kind: None: a type that holds all of them.

    Raises:
        MISMATCH: there is no such type, or `kind` does not hold them.
    """
    array = _inferred(values)
    _require_alike(values, array.type)
    return within_years(array if kind is None else cast(array, kind))


def cast_values(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as a column of another type.

    Raises:
        MISMATCH: it does not hold them.
    """
    return column if column.type.equals(kind) else within_years(cast(column, kind))


def _inferred(values: Sequence[Any]) -> pa.Array:
    """The values as pyarrow takes them, and ints from 2**63 on as uint64, which it never does."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, OverflowError):
        found = _with_unsigned(values)
        if found is None:
            raise
        return found
    except pa.ArrowTypeError:
        raise
    except TypeError as error:
        raise pa.ArrowTypeError("no column holds a Decimal that is not finite") from error


def _with_unsigned(values: Sequence[Any]) -> pa.Array | None:
    there = [each for each in values if each is not None]
    types = set(map(type, there))
    if types == {int}:
        return pa.array(values, pa.uint64()) if min(there) >= 0 else None
    if types == {dict}:
        names = tuple(dict.fromkeys(chain.from_iterable(there)))
        fields = [[each and each.get(name) for each in values] for name in names]
        nulls = pa.array([each is None for each in values])
        return pa.StructArray.from_arrays(list(map(_inferred, fields)), names, mask=nulls)
    if types and types <= {list, tuple}:
        lengths = [0 if each is None else len(each) for each in values]
        nulls = pa.array([each is None for each in values])
        offsets = pa.array([0, *accumulate(lengths)], pa.int32())
        within = _inferred(list(chain.from_iterable(there)))
        return pa.ListArray.from_arrays(offsets, within, mask=nulls)
    return None


def _require_alike(values: Sequence[Any], kind: pa.DataType) -> None:
    """Checks the kinds of values that pyarrow has taken as `kind`, all the way down."""
    found = set(map(type, values))
    if len(found) > 1 and any(apart <= found for apart in _APART):
        names = " and ".join(sorted(each.__name__ for each in found))
        raise pa.ArrowTypeError(f"one column cannot hold {names}")
    if int in found and kinds.is_float64(kind):
        ints = (each for each in values if type(each) is int)
        if not all(float(each) == each for each in ints):
            raise pa.ArrowInvalid("an int beside floats has more digits than float64 holds")
    if kinds.is_list(kind):
        within = [each for each in values if each is not None]
        _require_alike(list(chain.from_iterable(within)), kind.value_type)
    elif kinds.is_struct(kind):
        within = [each for each in values if each is not None]
        for field in kind.fields:
            _require_alike([each.get(field.name) for each in within], field.type)


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
