"""Python values as a column of a type, without losing anything.

pyarrow converts some values in silence: 2.5 to the integer 2, a datetime to its date, text to
bytes, and a dict to a struct without the keys that the struct lacks. So a column takes the type of
its values first and is cast then, and only where nobody has to guess: a number to another number
that is equal, ISO 8601 text to a date or
timestamp, and the same within lists and structs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

MISMATCH = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)
"""What is raised for values that a type cannot hold."""
_APART = ({str, bytes}, {date, datetime})
"""Types of which pyarrow makes one."""


def to_array(values: Sequence[Any], kind: pa.DataType | None = None) -> pa.Array:
    """A column of these values.

    Args:
        kind: None: a type that holds all of them.

    Raises:
        MISMATCH: there is no such type, or `kind` does not hold them.
    """
    found = set(map(type, values))
    if any(apart <= found for apart in _APART):
        names = " and ".join(sorted(each.__name__ for each in found))
        raise pa.ArrowTypeError(f"one column cannot hold {names}")
    array = pa.array(values)
    if kind is None or array.type.equals(kind):
        return array
    _check(kind, array.type)
    # An int64 is taken to have all digits that it may have, which few decimals hold.
    return pa.array(values, kind) if kinds.is_decimal(kind) else array.cast(kind)


def cast_values(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values as a column of another type.

    Raises:
        MISMATCH: it does not hold them.
    """
    if column.type.equals(kind):
        return column
    _check(kind, column.type)
    return column.cast(kind)


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
