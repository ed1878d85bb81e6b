"""The table of positions: how far each writer of a task has come.

The row of a writer is its fence: a transaction moves it, so a writer whose row was removed writes
nothing any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    delete,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.schema import CreateTable

from onyx.ids import GroupId
from onyx.plugins.protocol import PluginContext
from onyx.plugins.sql.engine import explained
from onyx.plugins.sql.target import Target
from onyx.plugins.sql.transaction import bounded_transaction

_NAME_CHARACTERS_MAX = 255


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
