"""Python values as a column of a type, without losing anything, and a column as Python values.

pyarrow converts some values in silence: 2.5 to the integer 2, a datetime to its date, text to
bytes, and a dict to a struct without the keys that the struct lacks. So a column takes the type of
its values first and is cast then (`cast`), and only where nobody has to guess.

The other way, pyarrow takes 2 to 7 us for each time, date and decimal, so these are made otherwise.

A cast loses nothing in silence either: a number becomes another number that is equal, or the
nearest float; ISO 8601 text a date or a timestamp, in UTC if it names no zone; and the same within
lists and structs. All else is refused, and so is what pyarrow does without a word: 1e300 as the
infinity of float32, 1.555 as the decimal 1.55. A float becomes the decimal of its shortest text, as
it does where JSON is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from onyx.flow.columns.compute import pc
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


_INTEGERS = pa.decimal128(20, 0)
"""Holds all ints of 64 bits. Of an int64 pyarrow takes a decimal to need all digits it may have."""

DIGITS_OF_FLOATS = 15
"""Each decimal of so many digits has a float of its own."""

_ZONED = r"[T ].*(Z|[+-]\d{2}(:?\d{2})?)$"
"""Text that names a time zone."""


def cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as a column of another type.

    Raises:
        pa.ArrowInvalid, pa.ArrowTypeError: it does not hold them.
    """
    given = column.type
    if given.equals(kind):
        return column
    if kinds.is_null(given):
        return pa.nulls(len(column), kind)
    if _is_number(given) and _is_number(kind):
        return _number(column, kind)
    if kinds.is_timestamp(kind) and kinds.is_timestamp(given):
        return column.cast(kind)
    if kinds.is_timestamp(kind) and kinds.is_string(given):
        return _timestamps(column, kind)
    if kinds.is_date(kind) and kinds.is_string(given):
        return column.cast(kind)
    if kinds.is_list(kind) and kinds.is_list(given):
        return _lists(column, kind)
    if kinds.is_struct(kind) and kinds.is_struct(given):
        return _structs(column, kind)
    raise pa.ArrowTypeError(f"{kind} does not hold {given}")


def _is_number(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind))


def _number(column: pa.Array, kind: pa.DataType) -> pa.Array:
    given = column.type
    if kinds.is_decimal(kind):
        if kinds.is_integer(given):
            column = column.cast(_INTEGERS)
        elif kinds.is_floating(given):
            column = column.cast(pa.string())
    found = column.cast(kind)
    if kinds.is_float32(kind) and _infinities(found) != _infinities(column):
        raise pa.ArrowInvalid("a number is beyond what float32 holds")
    return found


def are_floats(decimals: pa.Array | pa.ChunkedArray) -> bool:
    """Whether the float of each decimal is written as the decimal is."""
    floats = decimals.cast(pa.float64())
    # Of few digits each has a float of its own. Of more pyarrow rounds the same way there and back.
    many = pc.greater_equal(pc.abs(floats), 10.0 ** (DIGITS_OF_FLOATS - decimals.type.scale))
    return all(Decimal(repr(float(each))) == each for each in decimals.filter(many).to_pylist())


def _infinities(column: pa.Array) -> int:
    if not kinds.is_floating(column.type):
        return 0
    return pc.sum(pc.is_inf(column)).as_py() or 0


def _timestamps(text: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        zoned = pc.match_substring_regex(text, _ZONED)
        local = pc.if_else(zoned, None, text).cast(pa.timestamp(kind.unit))
        return pc.coalesce(
            pc.if_else(zoned, text, None).cast(kind), local.cast(pa.int64()).cast(kind)
        )


def _lists(column: pa.Array, kind: pa.DataType) -> pa.Array:
    lengths = pc.list_value_length(column).fill_null(0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    values = cast(column.flatten(), kind.value_type)
    return pa.ListArray.from_arrays(offsets, values, kind, mask=column.is_null())


def _structs(column: pa.Array, kind: pa.DataType) -> pa.Array:
    given = {each.name: at for at, each in enumerate(column.type.fields)}
    for name in given:
        if kind.get_field_index(name) < 0:
            raise pa.ArrowTypeError(f"{kind} has no field {name!r}")
    parts = column.flatten()
    fields = [
        cast(parts[given[each.name]], each.type)
        if each.name in given
        else pa.nulls(len(column), each.type)
        for each in kind.fields
    ]
    if not fields:
        return pa.array([None if each else {} for each in column.is_null().to_pylist()], kind)
    return pa.StructArray.from_arrays(fields, fields=kind.fields, mask=column.is_null())
