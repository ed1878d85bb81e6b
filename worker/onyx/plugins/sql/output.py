"""Output `sql`: rows of a table, in transactions that also hold the position of the writer.

The position of a writer is a row in a table of positions, and its fence: a transaction moves it, so
a writer whose row was removed writes nothing any more.

Invariant: a transaction moves the position first, which locks that row. Of several peers that apply
the same transaction at once, one goes on. The others wait for it, find the number reached, and
write nothing.

Rejected: a column with the number in the user's table (the table is theirs, and an upsert loses
it), a staging table that is merged at the end (writes twice), finding repeats by key (not every
table has one).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Insert,
    MetaData,
    String,
    Table,
    Text,
    cast,
    delete,
    func,
    insert,
    inspect,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, NoSuchTableError
from sqlalchemy.schema import CreateTable
from sqlalchemy.types import JSON

from onyx.base.path_names import PLAIN_NAMES, is_plain_name
from onyx.base.structs import UNREADABLE
from onyx.errors import UserError
from onyx.flow.batch import Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.ids import GroupId
from onyx.model.report import nearest, show
from onyx.plugins.options import option_error, task_error, variable_of
from onyx.plugins.protocol import PluginContext
from onyx.plugins.rolling import roll_limits
from onyx.plugins.sql.engine import IDLE_TIMEOUT_S, LOCK_TIMEOUT_S, connect, explained
from onyx.plugins.sql.options import SqlOptions
from onyx.plugins.sql.rows import ColumnRows, Row, TableRows, alike
from onyx.plugins.sql.statements import ColumnStatements, check_keys, upsert
from onyx.plugins.transactions import ColumnsTransactionWriter

_BOUNDED = select(
    func.set_config("lock_timeout", f"{LOCK_TIMEOUT_S}s", True),
    func.set_config("idle_in_transaction_session_timeout", f"{IDLE_TIMEOUT_S}s", True),
)
"""Limits of PostgreSQL, for one transaction."""
_NAME_CHARACTERS_MAX = 255


class SqlOutput(ColumnsTransactionWriter):
    """A `ColumnsTransactionWriter` over a `SqlStore`."""

    def __init__(self, context: PluginContext, options: SqlOptions) -> None:
        columns = options.columns
        target = Target(
            options.table,
            options.schema,
            {each: each for each in columns} if isinstance(columns, list) else columns,
            tuple(options.keys),
            options.positions_table,
        )
        engine = connect(context, "url" if options.url else "urlEnv", _url(context, options))
        self._table_store = SqlStore(engine, context, target)
        super().__init__(self._table_store, context, roll_limits(options))

    def rows_behind(
        self, keys: Sequence[str], order: Sequence[str], behind: Sequence[object] | None, most: int
    ) -> list[Segment]:
        """Some keys of rows in the table; `SqlStore.rows_behind`."""
        return self._table_store.rows_behind(keys, order, behind, most)

    def rows_without(self, keys: Sequence[str]) -> int:
        """How many rows lack one of these keys."""
        return self._table_store.rows_without(keys)


def _url(context: PluginContext, options: SqlOptions) -> str:
    if options.url is not None:
        return options.url
    assert options.url_env is not None, "checked with the options"
    return variable_of(context, "urlEnv", options.url_env)


class SqlStore:
    """The store of one task of one job (`transactions.TransactionStore`)."""

    def __init__(self, engine: Engine, context: PluginContext, target: Target) -> None:
        self._engine = engine
        self._context = context
        self._target = target
        self._statements: dict[tuple[str, ...], Insert] = {}
        self._positions = Positions(engine, context, target)

    def check(self, segments: Sequence[Segment]) -> None:
        """Convert the segments to rows. Raises UserError, with the key that does not fit."""
        self._rows.of(segments)

    def check_columns(self, columns: Columns) -> None:
        """Checks what `check` does, for segments in columns."""
        self._rows.of_columns(columns)

    def open(self, writer: str) -> None:
        """Insert the row of the writer, at 0; a repeat finds it there."""
        self._positions.open(writer)

    def apply(self, writer: str, number: int, segments: list[Segment]) -> bool:
        """A transaction of dicts."""
        return self.apply_runs(writer, number, [segments])

    def apply_runs(self, writer: str, number: int, runs: Sequence[Segments]) -> bool:
        """Move the position, then write the rows: the update locks the row of the position, so
        of several that apply the same transaction one writes and the others find the number
        reached."""
        with (
            explained(self._context, self._writing),
            bounded_transaction(self._engine) as connection,
        ):
            moved = self._positions.move(connection, writer, number)
            for run in runs if moved else ():
                self._write(connection, run)
            return moved is not None

    def _write(self, connection: Connection, run: Segments) -> None:
        rows = self._rows
        found: ColumnRows | list[Row] = format_of(run).choose(rows.of, rows.of_columns)(run)
        if isinstance(found, ColumnRows):
            self._column_statements.write(connection, found)
            return
        for names, some in alike(found):
            connection.execute(self._statement(names), some)

    def fence(self, live: Sequence[GroupId]) -> None:
        """Delete the rows of dead writers. Also checks the table before the first segment."""
        assert self._rows is not None
        self._positions.fence(live)

    def rows_behind(
        self, keys: Sequence[str], order: Sequence[str], behind: Sequence[object] | None, most: int
    ) -> list[Segment]:
        """Some keys of rows in the table, as the segments that they were: in the order of texts
        that all of these have, those behind the last ones; None: the first.

        Raises:
            UserError: the table has no such columns, or what no column of its kind holds.
        """
        texts = [self._column(key) for key in order]
        documents = {key for key in keys if isinstance(self._column(key).type, JSON)}
        wanted = select(
            *(cast(self._column(key), Text).label(key) for key in keys if key in documents),
            *(self._column(key).label(key) for key in keys if key not in documents),
        )
        wanted = wanted.where(*(text != "" for text in texts)).order_by(*texts).limit(most)
        if behind is not None:
            wanted = wanted.where(tuple_(*texts) > tuple_(*behind))
        with explained(self._context, self._reading), self._engine.connect() as connection:
            try:
                rows = [dict(row) for row in connection.execute(wanted).mappings()]
            except (TypeError, ValueError) as error:  # SQLite keeps whatever it gets in any column
                raise task_error(self._context, f"{self._reading} failed: {error}") from error
        for row in rows:
            row.update((key, _document(row[key])) for key in documents)
        return rows

    def rows_without(self, keys: Sequence[str]) -> int:
        """How many rows have no text for one of these keys."""
        lacks = or_(*(self._column(key).is_(None) | (self._column(key) == "") for key in keys))
        wanted = select(func.count()).select_from(self._table).where(lacks)
        with explained(self._context, self._reading), self._engine.connect() as connection:
            return int(connection.scalar(wanted) or 0)

    def _column(self, key: str) -> Column[Any]:
        name = key if self._target.columns is None else self._target.columns.get(key)
        if name is None or name not in self._table.columns:
            what = f"has no column for {key!r}, so nothing can be read back from it"
            raise task_error(self._context, f"table {self._target.table!r} {what}")
        return self._table.columns[name]

    @property
    def _reading(self) -> str:
        return f"reading table {self._target.table!r}"

    def forget(self, writer: str | None) -> None:
        """Delete the row of a writer, or all rows of the task."""
        self._positions.forget(writer)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @cached_property
    def _rows(self) -> TableRows:
        target = self._target
        dialect = self._engine.dialect.name
        return TableRows(self._context, self._table, target.columns, target.keys, dialect)

    @cached_property
    def _table(self) -> Table:
        return table_of(self._engine, self._context, self._target)

    def _statement(self, names: tuple[str, ...]) -> Insert:
        if names not in self._statements:
            keys = self._target.keys
            self._statements[names] = (
                upsert(self._engine, self._table, keys, names)
                if keys
                else insert(self._table).inline()
            )
        return self._statements[names]

    @cached_property
    def _column_statements(self) -> ColumnStatements:
        added = not self._target.keys
        return ColumnStatements(self._engine, self._table, self._statement, added)

    @property
    def _writing(self) -> str:
        return f"writing to table {self._target.table!r}"


def _document(text: Any) -> Any:
    """What a column of JSON holds; if that is something else, as it is."""
    try:
        return msgspec.json.decode(text)
    except (TypeError, *UNREADABLE):
        return text


def table_of(engine: Engine, context: PluginContext, target: Target) -> Table:
    """Read what columns there are.

    Raises:
        UserError: the table is not there, or cannot be written as wanted.
    """
    with explained(context, f"reading the columns of table {target.table!r}"):
        try:
            table = Table(target.table, MetaData(), schema=target.schema, autoload_with=engine)
        except NoSuchTableError as error:
            raise _no_table(engine, context, target) from error
        if target.keys:
            check_keys(context, engine, table, target.keys)
    for column in table.columns:
        if isinstance(column.type, JSON):
            column.type.none_as_null = True
    return table


def _no_table(engine: Engine, context: PluginContext, target: Target) -> Exception:
    names = inspect(engine).get_table_names(target.schema)
    hint = nearest(target.table, names) or "create it, or let this user see it"
    where = f" in schema {target.schema!r}" if target.schema else ""
    what = f"is {target.table!r}, a table that the database does not have{where} ({hint})"
    return option_error(context, "table", what)


class Target(msgspec.Struct, frozen=True):
    """Where rows go."""

    table: str
    schema: str | None
    columns: Mapping[str, str] | None
    """By key of the segment; None means that every key is a column."""
    keys: tuple[str, ...]
    """Columns by which a row replaces another one; none if rows are only added."""
    positions: str
    """Name of the table of positions."""

    def __post_init__(self) -> None:
        for name in (self.table, self.schema, self.positions):
            if name is not None and not is_plain_name(name):
                raise UserError(f"{show(name)} is no name in a database: use {PLAIN_NAMES}")


@contextmanager
def bounded_transaction(engine: Engine) -> Iterator[Connection]:
    """Committed at the end; rolled back after an exception."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(_BOUNDED)
        yield connection


class Positions:
    """The positions of the writers of one task of one job."""

    def __init__(self, engine: Engine, context: PluginContext, target: Target) -> None:
        self._engine = engine
        self._context = context
        self._table = _table(target)
        columns = self._table.c
        self._own = (columns.job == str(context.job)) & (columns.task == str(context.task))

    def open(self, writer: str) -> None:
        """Insert the row of the writer, at 0; a repeat finds it there."""
        job, task = str(self._context.job), str(self._context.task)
        with explained(self._context, self._writing):
            self._make()
            try:
                with bounded_transaction(self._engine) as connection:
                    values = {"job": job, "task": task, "writer": writer, "number": 0}
                    connection.execute(insert(self._table).values(values))
            except IntegrityError:
                """It is there."""

    def move(self, connection: Connection, writer: str, number: int) -> bool | None:
        """Move a writer to a number, in a transaction, which locks its row; False if it has come
        there before, None if it has no row."""
        columns = self._table.c
        own = self._own & (columns.writer == writer)
        come = update(self._table).where(own, columns.number < number).values(number=number)
        if connection.execute(come).rowcount:
            return True
        return (
            None if connection.execute(select(columns.number).where(own)).first() is None else False
        )

    def fence(self, live: Sequence[GroupId]) -> None:
        """Delete the rows of dead writers."""
        known = self._table.c.writer
        with explained(self._context, self._writing):
            if not self._there():
                return
            with bounded_transaction(self._engine) as connection:
                writers = list(connection.scalars(select(known).where(self._own)))
            dead = [each for each in writers if each.rpartition(".")[0] not in live]
            if dead:
                with bounded_transaction(self._engine) as connection:
                    connection.execute(delete(self._table).where(self._own, known.in_(dead)))

    def forget(self, writer: str | None) -> None:
        """Delete the row of a writer, or all rows of the task."""
        gone = delete(self._table).where(self._own)
        if writer is not None:
            gone = gone.where(self._table.c.writer == writer)
        with explained(self._context, self._writing):
            if self._there():
                with bounded_transaction(self._engine) as connection:
                    connection.execute(gone)

    def _there(self) -> bool:
        return inspect(self._engine).has_table(self._table.name, self._table.schema)

    def _make(self) -> None:
        if self._there():
            return
        try:
            with self._engine.begin() as connection:
                connection.execute(CreateTable(self._table, if_not_exists=True))
        except DBAPIError:
            if not self._there():  # made by another one at the same time
                raise

    @property
    def _writing(self) -> str:
        return f"writing to the table of positions, {self._table.name!r},"


def _table(target: Target) -> Table:
    def name(what: str) -> Column[str]:
        return Column(what, String(_NAME_CHARACTERS_MAX), primary_key=True)

    return Table(
        target.positions,
        MetaData(),
        name("job"),
        name("task"),
        name("writer"),
        Column("number", BigInteger, nullable=False),
        schema=target.schema,
    )
