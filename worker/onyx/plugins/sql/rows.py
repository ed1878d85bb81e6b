"""Segments as rows of a table: which key goes to which column, and how it is converted, or why it
cannot be.

Values are checked before anything is committed, and alike for every database. SQLite would store
text in a column of integers, PostgreSQL would round, and a value that a database refuses later
can no longer be dropped from a committed transaction. Types that are not listed here are left to
the database.

Columns of segments are checked and converted whole, for the usual pairs of types only: whole
numbers, texts, times and so on in columns of their kind. Everything else, and everything that does
not fit, is left to `TableRows`, which converts value by value and says what is wrong: so there is
one set of rules and one set of messages.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from itertools import groupby
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from sqlalchemy import ARRAY, JSON, Column, Table, types

from onyx.flow.columns.moments import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, is_within
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.flow.segment import Segment
from onyx.model.report import nearest
from onyx.plugins.options import option_error, task_error
from onyx.plugins.protocol import PluginContext

Row = dict[str, Any]
"""By column. A column that is not in it gets its default."""
Convert = Callable[[Any], Any]
"""A value that is not None, for a column. Raises ValueError that says what the value is."""
_BITS = ((types.SmallInteger, 16), (types.BigInteger, 64), (types.Integer, 32))
_LOOSE_BITS = 64
"""The bits of an integer in SQLite, whatever its column is called."""
Fit = Callable[[pa.Array], pa.Array | None]
"""A column as the database is to get it; None if that is left to `TableRows`."""


class TableRows:
    """The rows of one table."""

    def __init__(
        self,
        context: PluginContext,
        table: Table,
        columns: Mapping[str, str] | None,
        keys: Sequence[str],
        dialect: str,
    ) -> None:
        """`columns`: by key of the segment; None means that every key is a column. `keys`: columns
        that must have a value whatever the table says.

        Raises:
            UserError: the table has no such column, or one that must have a value gets none.
        """
        self._context = context
        self._table = table
        self._every = columns is None
        named = {each.name: each.name for each in table.columns} if columns is None else columns
        for column in named.values():
            if column not in table.columns:
                hint = nearest(column, self._names()) or f"it has {', '.join(self._names())}"
                raise option_error(
                    context, "columns", f"names {column!r}, which {self._where} lacks ({hint})"
                )
        self._converters = [
            (key, column, converter(table.columns[column], dialect))
            for key, column in named.items()
        ]
        self._fits = {key: fit(table.columns[column], dialect) for key, column in named.items()}
        required = [each.name for each in table.columns if is_required(each)]
        self._required = list(dict.fromkeys([*keys, *required]))
        for column in self._required:
            if column not in named.values():
                what = f"lack {column!r}, which must have a value in {self._where}"
                raise option_error(context, "columns", what)

    def of(self, segments: Iterable[Segment]) -> list[Row]:
        """One row a segment.

        Raises:
            UserError: a segment does not fit.
        """
        return [self._row(segment) for segment in segments]

    def of_columns(self, columns: Columns) -> ColumnRows | list[Row]:
        """The rows for segments in columns: by column if these are of usual types.

        Raises:
            UserError: a segment does not fit.
        """
        found = self._by_column(columns)
        if found is not None:
            return found
        try:
            return self.of(to_dicts(columns))
        except (OverflowError, ValueError) as error:
            what = f"a segment has a value that Python cannot hold ({error})"
            raise task_error(self._context, f"{what}; {self._where} gets none of it") from error

    def _by_column(self, columns: Columns) -> ColumnRows | None:
        batch = columns.record_batch
        names, arrays = [], []
        for key, column, _ in self._converters:
            if columns.has(key):
                array = self._fits[key](batch.column(key))
                if array is None:
                    return None
                names.append(column)
                arrays.append(array)
        strangers = self._every and len(names) != batch.num_columns
        given = dict(zip(names, arrays, strict=True))
        lacking = any(each not in given or given[each].null_count for each in self._required)
        return None if strangers or lacking or not names else ColumnRows(tuple(names), arrays)

    def _row(self, segment: Segment) -> Row:
        row: Row = {}
        for key, column, convert in self._converters:
            if key in segment:
                value = segment[key]
                try:
                    row[column] = None if value is None else convert(value)
                except ValueError as error:
                    raise self._misfit(key, column, error) from error
        if self._every and len(row) != len(segment):
            raise self._stranger(segment)
        if not row:
            raise task_error(self._context, f"a segment has none of the columns of {self._where}")
        for column in self._required:
            if row.get(column) is None:
                what = f"a segment has no value for column {column!r} of {self._where}"
                raise task_error(self._context, f"{what}, which must have one")
        return row

    def _misfit(self, key: str, column: str, error: ValueError) -> Exception:
        kind = self._table.columns[column].type
        return task_error(
            self._context,
            f"key {key!r} of a segment holds {error}; column {column!r} of {self._where} "
            f"is {kind!s}: change the column, or the value in a function before",
        )

    def _stranger(self, segment: Segment) -> Exception:
        key = next(key for key in segment if key not in self._table.columns)
        hint = nearest(key, self._names()) or f"it has {', '.join(self._names())}"
        return task_error(
            self._context,
            f"{self._where} has no column for key {key!r} of a segment ({hint}); option 'columns' "
            "says which keys to write, and where",
        )

    def _names(self) -> list[str]:
        return [each.name for each in self._table.columns]

    @property
    def _where(self) -> str:
        return f"table {self._table.fullname!r}"


def alike(rows: Sequence[Row]) -> Iterable[tuple[tuple[str, ...], list[Row]]]:
    """Runs of rows with the same columns, in order: each is one statement."""
    for names, run in groupby(rows, key=tuple):
        yield names, list(run)


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
        plain = msgspec.to_builtins(value)  # times and the like as JSON lines have them
        json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"something that JSON cannot say ({error})") from error
    return plain


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
        return _integer_column(_LOOSE_BITS if dialect == "sqlite" else bits)
    if isinstance(kind, types.Enum):
        return _nothing
    if isinstance(kind, types.String):
        length = None if dialect == "sqlite" else kind.length
        return _text_column(length, zero_ends=dialect == "postgresql")
    if isinstance(kind, types.Float):
        if dialect == "sqlite":
            return _numbers_of_sqlite
        # Others round a float64 to fewer digits, which the text of a number would not be.
        return _floats if isinstance(kind, types.Double) else _nothing
    if isinstance(kind, types.DateTime):
        return _instants if kind.timezone else _local_instants
    return next((each for family, each in _FITS if isinstance(kind, family)), _nothing)


def _nothing(_: pa.Array) -> None:
    """For values that only `TableRows` converts."""


def _integer_column(bits: int) -> Fit:
    limit = 1 << (bits - 1)

    def fitted(array: pa.Array) -> pa.Array | None:
        whole = kinds.is_integer(array.type) and is_within(array, -limit, limit - 1)
        return array if whole else None

    return fitted


def _text_column(length: int | None, zero_ends: bool) -> Fit:
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


def _exact_column(is_kind: Callable[[pa.DataType], bool]) -> Fit:
    def fitted(array: pa.Array) -> pa.Array | None:
        return array if is_kind(array.type) else None

    return fitted


_FITS: tuple[tuple[type[Any], Fit], ...] = (
    (types.Boolean, _exact_column(kinds.is_boolean)),
    (types.Numeric, _numerics),
    (types.LargeBinary, _exact_column(kinds.is_binary)),
    (types.Date, _dates),
    (types.Time, _exact_column(kinds.is_time64)),
)
"""The first family that a type belongs to."""
