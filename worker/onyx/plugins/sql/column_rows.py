"""Columns of segments as columns of a table, checked and converted whole.

For the usual pairs of types only: whole numbers, texts, times and so on in columns of their kind.
Everything else, and everything that does not fit, is left to `Rows`, which converts value by value
and says what is wrong; so there is one set of rules and one set of messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from sqlalchemy import Column, types

from onyx.flow.columns.moments import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, is_within

Fit = Callable[[pa.Array], pa.Array | None]
"""A column as the database is to get it; None if that is left to `Rows`."""

_BITS = ((types.SmallInteger, 16), (types.BigInteger, 64), (types.Integer, 32))
_LOOSE_BITS = 64
"""The bits of an integer in SQLite, whatever its column is called."""


class ColumnRows(msgspec.Struct, frozen=True):
    """Rows of a table by column."""

    names: tuple[str, ...]
    arrays: list[pa.Array]


def fit(column: Column[Any], dialect: str) -> Fit:
    """How columns of segments become this column of a database of this kind."""
    kind = column.type
    found = _fit(kind, dialect)

    def fitted(array: pa.Array) -> pa.Array | None:
        return array if kinds.is_null(array.type) else found(array)

    return fitted


def _fit(kind: types.TypeEngine[Any], dialect: str) -> Fit:
    if isinstance(kind, types.Integer):
        bits = next(bits for family, bits in _BITS if isinstance(kind, family))
        return _integers(_LOOSE_BITS if dialect == "sqlite" else bits)
    if isinstance(kind, types.Enum):
        return _nothing
    if isinstance(kind, types.String):
        length = None if dialect == "sqlite" else kind.length
        return _texts(length, zero_ends=dialect == "postgresql")
    if isinstance(kind, types.Float):
        if dialect == "sqlite":
            return _numbers_of_sqlite
        # Others round a float64 to fewer digits, which the text of a number would not be.
        return _floats if isinstance(kind, types.Double) else _nothing
    if isinstance(kind, types.DateTime):
        return _instants if kind.timezone else _local_instants
    return next((each for family, each in _FITS if isinstance(kind, family)), _nothing)


def _nothing(_: pa.Array) -> None:
    """For values that only `Rows` converts."""


def _integers(bits: int) -> Fit:
    limit = 1 << (bits - 1)

    def fitted(array: pa.Array) -> pa.Array | None:
        whole = kinds.is_integer(array.type) and is_within(array, -limit, limit - 1)
        return array if whole else None

    return fitted


def _texts(length: int | None, zero_ends: bool) -> Fit:
    def fitted(array: pa.Array) -> pa.Array | None:
        if not kinds.is_string(array.type):
            return None
        if length is not None and not is_within(pc.utf8_length(array), 0, length):
            return None
        if zero_ends and pc.any(pc.match_substring(array, "\0")).as_py():
            return None
        return array

    return fitted


def _floats(array: pa.Array) -> pa.Array | None:
    number = kinds.is_integer(array.type) or kinds.is_floating(array.type)
    return array.cast(pa.float64(), safe=False) if number else None


def _numbers_of_sqlite(array: pa.Array) -> pa.Array | None:
    floats = _floats(array)
    return None if floats is None or pc.any(pc.is_nan(floats)).as_py() else floats


def _numerics(array: pa.Array) -> pa.Array | None:
    return array if kinds.is_integer(array.type) or kinds.is_decimal(array.type) else None


def _instants(array: pa.Array) -> pa.Array | None:
    if not kinds.is_timestamp(array.type):
        return None
    if not is_within(array.cast(pa.int64()), FIRST_US, LAST_US):
        return None
    return array.cast(pa.timestamp("us", "UTC"))


def _local_instants(array: pa.Array) -> pa.Array | None:
    """In UTC, for a column that does not say so."""
    instants = _instants(array)
    return None if instants is None else instants.cast(pa.int64()).cast(pa.timestamp("us"))


def _dates(array: pa.Array) -> pa.Array | None:
    if not kinds.is_date32(array.type):
        return None
    return array if is_within(array.cast(pa.int32()), FIRST_DAY, LAST_DAY) else None


def _exactly(is_kind: Callable[[pa.DataType], bool]) -> Fit:
    def fitted(array: pa.Array) -> pa.Array | None:
        return array if is_kind(array.type) else None

    return fitted


_FITS: tuple[tuple[type[Any], Fit], ...] = (
    (types.Boolean, _exactly(kinds.is_boolean)),
    (types.Numeric, _numerics),
    (types.LargeBinary, _exactly(kinds.is_binary)),
    (types.Date, _dates),
    (types.Time, _exactly(kinds.is_time64)),
)
"""The first family that a type belongs to."""
