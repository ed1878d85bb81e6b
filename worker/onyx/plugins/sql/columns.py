"""Converts values of segments to values of a column, or says why it cannot.

Values are checked before anything is committed, and alike for every database. SQLite would store
text in a column of integers, PostgreSQL would round, and a value that a database refuses later
can no longer be dropped from a committed transaction. Types that are not listed here are left to
the database.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, JSON, Column, types

Convert = Callable[[Any], Any]
"""A value that is not None, for a column. Raises ValueError that says what the value is."""

_BITS = ((types.SmallInteger, 16), (types.BigInteger, 64), (types.Integer, 32))
_LOOSE_BITS = 64
"""The bits of an integer in SQLite, whatever its column is called."""


def converter(column: Column[Any], dialect: str) -> Convert:
    """How values become values of a column of a database of this kind."""
    kind = column.type
    if isinstance(kind, types.Integer):
        return _integers(kind, dialect)
    if isinstance(kind, types.Enum):
        return _one_of(tuple(kind.enums))
    if isinstance(kind, types.String):
        return _texts(None if dialect == "sqlite" else kind.length, dialect == "postgresql")
    if isinstance(kind, types.Float):
        return _finite if dialect == "sqlite" else _float
    if isinstance(kind, types.DateTime):
        return _instant if kind.timezone else _local_instant
    for family, convert in _CONVERTERS:
        if isinstance(kind, family):
            return convert
    return _scalar


def is_required(column: Column[Any]) -> bool:
    """Whether the database has nothing to put where a segment has no value."""
    generated = column.identity is not None or column.computed is not None
    counted = column.autoincrement in (True, "auto") and column.primary_key
    counted = counted and isinstance(column.type, types.Integer)
    return not (column.nullable or column.server_default is not None or generated or counted)


def _integers(kind: types.Integer, dialect: str) -> Convert:
    bits = next(bits for family, bits in _BITS if isinstance(kind, family))
    limit = 1 << (_LOOSE_BITS if dialect == "sqlite" else bits) - 1

    def convert(value: Any) -> Any:
        if type(value) is not int:
            raise _not(value)
        if not -limit <= value < limit:
            raise ValueError("an int that is too large for it")
        return value

    return convert


def _texts(length: int | None, zero_ends: bool) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not str:
            raise _not(value)
        if length is not None and len(value) > length:
            raise ValueError(f"a str of {len(value)} characters, but at most {length} fit")
        if zero_ends and "\0" in value:
            raise ValueError("a str with a NUL character, which the database cannot store")
        return value

    return convert


def _one_of(names: Sequence[str]) -> Convert:
    def convert(value: Any) -> Any:
        if value not in names:
            raise ValueError(f"something else than {', '.join(names)}")
        return value

    return convert


def _exactly(kind: type) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise _not(value)
        return value

    return convert


def _float(value: Any) -> Any:
    if type(value) is not float and type(value) is not int:
        raise _not(value)
    return float(value)


def _finite(value: Any) -> Any:
    """SQLite would store NULL for NaN."""
    number = _float(value)
    if number != number:
        raise ValueError("NaN, which SQLite cannot store")
    return number


def _numeric(value: Any) -> Any:
    if type(value) is str:
        try:
            return Decimal(value)
        except InvalidOperation as error:
            raise ValueError("a str that is no number") from error
    if type(value) not in (float, int, Decimal):
        raise _not(value)
    if not math.isfinite(value):
        raise ValueError("NaN or an infinity, which few databases store as a number")
    return value


def _instant(value: Any) -> datetime:
    if type(value) is str:
        value = _parsed(datetime.fromisoformat, value)
    if type(value) is not datetime:
        raise _not(value)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _local_instant(value: Any) -> Any:
    """In UTC, for a column that does not say so."""
    return _instant(value).replace(tzinfo=None)


def _date(value: Any) -> Any:
    if type(value) is date:
        return value
    if type(value) is datetime:
        return _instant(value).date()
    if type(value) is not str:
        raise _not(value)
    return _parsed(date.fromisoformat, value)


def _time(value: Any) -> Any:
    if type(value) is time:
        return value
    if type(value) is not str:
        raise _not(value)
    return _parsed(time.fromisoformat, value)


def _uuid(value: Any) -> Any:
    if type(value) is not str:
        raise _not(value)
    return _parsed(UUID, value)


def _json(value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"something that JSON cannot say ({error})") from error
    return value


def _list(value: Any) -> Any:
    if type(value) is not list:
        raise _not(value)
    return value


def _scalar(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        raise _not(value)
    if type(value) is float and value != value:
        raise ValueError("NaN")
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ValueError("an int that is too large for it")
    return value


def _parsed(parse: Callable[[str], Any], value: str) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        raise ValueError("a str in another form (ISO 8601 is understood)") from error


def _not(value: Any) -> ValueError:
    article = "an" if type(value).__name__[0] in "aeiou" else "a"
    nested = isinstance(value, dict | list | tuple)
    hint = ", which only a JSON column takes" if nested else ""
    return ValueError(f"{article} {type(value).__name__}{hint}")


_CONVERTERS: tuple[tuple[type[Any], Convert], ...] = (
    (types.Boolean, _exactly(bool)),
    (types.Numeric, _numeric),
    (types.LargeBinary, _exactly(bytes)),
    (types.Date, _date),
    (types.Time, _time),
    (types.Uuid, _uuid),
    (JSON, _json),
    (ARRAY, _list),
)
"""The first family that a type belongs to."""
