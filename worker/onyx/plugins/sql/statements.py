"""Writes columns to a table: COPY where PostgreSQL allows it, else one statement for many rows.

COPY only adds rows, and not to views or to tables with rules or row-level security. It gets CSV,
which Arrow writes. The binary form of COPY was rejected: it would have to be made here, in exactly
the types of the table. A statement for many rows gets tuples, which the driver takes as they are;
SQLAlchemy would make a dict of each row.

Each kind of database has its own statement for rows that replace others by key.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.types as kinds
from sqlalchemy import Connection, Engine, Insert, Table, inspect, text
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from onyx.flow.columns.values import python_values
from onyx.plugins.options import option_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.sql.rows import ColumnRows

_POSITIONAL = {"pyformat": "format", "named": "qmark"}
"""Styles of parameters by name, and of the same by position."""
_COPIES = text(
    "SELECT relkind IN ('r', 'p') AND NOT relhasrules AND NOT row_security_active(oid) "
    "FROM pg_class WHERE oid = to_regclass(:name)"
)
_CSV = pcsv.WriteOptions(include_header=False, quoting_style="needed")
"""Texts are in quotes and nulls are not, which is how COPY tells them apart."""
_BY_CONFLICT: Mapping[str, Callable[[Table], postgresql.Insert | sqlite.Insert]] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}
_BY_DUPLICATE = ("mysql", "mariadb")


class ColumnStatements:
    """The statements of one table."""

    def __init__(
        self,
        engine: Engine,
        table: Table,
        insert: Callable[[tuple[str, ...]], Insert],
        added: bool,
    ) -> None:
        """`insert`: the statement for rows of these columns; `added`: it only adds rows."""
        self._engine = engine
        self._table = table
        self._insert = insert
        self._may_copy = added and engine.dialect.driver == "psycopg"
        self._copied: bool | None = None
        """Whether COPY may write to the table; None: not known yet."""
        self._statements: dict[tuple[str, ...], tuple[str, list[str]]] = {}

    def write(self, connection: Connection, rows: ColumnRows) -> None:
        """All rows, in their order."""
        if self._may_copy and self._copies(connection):
            self._copy(connection, rows)
            return
        if rows.names not in self._statements:
            self._statements[rows.names] = self._compiled(rows.names)
        statement, order = self._statements[rows.names]
        values = {
            name: self._driver_values(name, array)
            for name, array in zip(rows.names, rows.arrays, strict=True)
        }
        each = list(zip(*(values[name] for name in order), strict=True))
        connection.exec_driver_sql(statement, each)

    def _copies(self, connection: Connection) -> bool:
        if self._copied is None:
            name = self._quoted.format_table(self._table)
            self._copied = bool(connection.scalar(_COPIES, {"name": name}))
        return self._copied

    @cached_property
    def _quoted(self) -> Any:
        return self._engine.dialect.identifier_preparer

    def _copy(self, connection: Connection, rows: ColumnRows) -> None:
        names = ", ".join(map(self._quoted.quote, rows.names))
        # SQLAlchemy doubles each `%`, with which a parameter would begin; COPY has none.
        into = f"{self._quoted.format_table(self._table)} ({names.replace('%%', '%')})"
        statement = f"COPY {into} FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
        errors: Any = self._engine.dialect.dbapi
        try:
            cursor: Any = connection.connection.cursor()
            with cursor, cursor.copy(statement) as writing:
                writing.write(memoryview(_csv(rows)))
        except errors.Error as error:
            # As SQLAlchemy raises what it calls itself; the data are not in it.
            raise DBAPIError.instance(
                "COPY",
                None,
                error,
                errors.Error,
                hide_parameters=True,
                dialect=self._engine.dialect,
            ) from error

    def _compiled(self, names: tuple[str, ...]) -> tuple[str, list[str]]:
        """The statement with parameters by position, and the columns of these."""
        dialect = copy.copy(self._engine.dialect)
        dialect.paramstyle = _POSITIONAL.get(dialect.paramstyle, dialect.paramstyle)
        dialect.positional = True
        compiled: Any = self._insert(names).compile(dialect=dialect, column_keys=list(names))
        return str(compiled), list(compiled.positiontup)

    def _driver_values(self, name: str, array: pa.Array) -> list[Any]:
        """What the driver gets for a column."""
        dialect = self._engine.dialect
        values = python_values(array)
        convert = self._table.columns[name].type.dialect_impl(dialect).bind_processor(dialect)
        return values if convert is None else list(map(convert, values))


def _csv(rows: ColumnRows) -> pa.Buffer:
    texts = [_text(array) for array in rows.arrays]
    out = pa.BufferOutputStream()
    pcsv.write_csv(pa.record_batch(texts, names=list(rows.names)), out, _CSV)
    return out.getvalue()


def _text(array: pa.Array) -> pa.Array:
    """The text of the values, as PostgreSQL reads them."""
    kind = array.type
    if kinds.is_timestamp(kind) and kind.tz is not None:
        local = array.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string())
        return pc.binary_join_element_wise(local, "Z", "")
    if kinds.is_binary(kind):
        return pc.binary_join_element_wise("\\x", _hexadecimal(array), "")
    return array.cast(pa.string())


def _hexadecimal(array: pa.Array) -> pa.Array:
    """Two digits a byte."""
    whole = pa.concat_arrays([array])  # begins at the start of its buffers
    mask, offsets, data = whole.buffers()
    doubled = np.frombuffer(offsets, np.int32, len(whole) + 1) * np.int32(2)
    digits = (data.to_pybytes() if data else b"").hex().encode()
    buffers = [mask, pa.py_buffer(doubled), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), len(whole), buffers)


def check_keys(context: PluginContext, engine: Engine, table: Table, keys: Sequence[str]) -> None:
    """Check that these columns identify a row.

    Raises:
        UserError: the table lacks one, or a constraint that they are unique; or it is not known
            how to replace rows in this kind of database.
    """
    name = engine.dialect.name
    if name not in (*_BY_CONFLICT, *_BY_DUPLICATE):
        kinds = ", ".join((*_BY_CONFLICT, *_BY_DUPLICATE))
        raise option_error(context, "mode", f"cannot be upsert with {name}, only with {kinds}")
    for key in keys:
        if key not in table.columns:
            raise option_error(context, "keys", f"names {key!r}, which {table.fullname!r} lacks")
    if set(keys) not in _unique(engine, table):
        what = f"are no primary key and no unique constraint of table {table.fullname!r}"
        raise option_error(context, "keys", f"{what}; make them one: {', '.join(keys)}")


def upsert(engine: Engine, table: Table, keys: Sequence[str], names: Sequence[str]) -> Insert:
    """The statement for rows with these columns; what is not among them stays as it was."""
    others = [name for name in names if name not in keys]
    if engine.dialect.name in _BY_DUPLICATE:
        row = mysql.insert(table).inline()
        # A key set to itself is how this kind of database says that nothing is to be changed.
        return row.on_duplicate_key_update({each: row.inserted[each] for each in others or keys})
    inserted = _BY_CONFLICT[engine.dialect.name](table).inline()
    if not others:
        return inserted.on_conflict_do_nothing(index_elements=list(keys))
    replaced = {each: inserted.excluded[each] for each in others}
    return inserted.on_conflict_do_update(index_elements=list(keys), set_=replaced)


def _unique(engine: Engine, table: Table) -> list[set[str]]:
    """Sets of columns by which a row is the only one."""
    seen = inspect(engine)
    found = [seen.get_pk_constraint(table.name, table.schema)["constrained_columns"]]
    found += [
        each["column_names"] for each in seen.get_unique_constraints(table.name, table.schema)
    ]
    found += [
        [name for name in each["column_names"] if name is not None]
        for each in seen.get_indexes(table.name, table.schema)
        if each["unique"]
    ]
    return [set(names) for names in found]
