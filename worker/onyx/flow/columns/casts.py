"""Casts of columns that lose nothing in silence.

A number becomes another number that is equal, or the nearest float; ISO 8601 text a date or a
timestamp, in UTC if it names no zone; and the same within lists and structs. All else is refused,
and so is what pyarrow does without a word: 1e300 as the infinity of float32, 1.555 as the decimal
1.55. A float becomes the decimal of its shortest text, as it does where JSON is read.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.types as kinds

from onyx.flow.columns.compute import pc

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
