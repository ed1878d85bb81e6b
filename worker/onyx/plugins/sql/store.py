"""A table of a database as a `TransactionStore`: rows and position in one transaction.

The position of a writer is a row in a table of positions.

Invariant: a transaction moves the position first, which locks that row. Of several peers that apply
the same transaction at once, one goes on. The others wait for it, find the number reached, and
write nothing.

Rejected: a column with the number in the user's table (the table is theirs, and an upsert loses
it), a staging table that is merged at the end (writes twice), finding repeats by key (not every
table has one).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from sqlalchemy import Connection, Engine, Insert, Table, insert

from onyx.flow.batch import Segment, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.ids import GroupId
from onyx.plugins.protocol import PluginContext
from onyx.plugins.segment_runs import Run
from onyx.plugins.sql.column_rows import ColumnRows
from onyx.plugins.sql.engine import explained
from onyx.plugins.sql.positions import Positions
from onyx.plugins.sql.rows import Row, Rows, alike
from onyx.plugins.sql.statements import ColumnStatements
from onyx.plugins.sql.table import table_of
from onyx.plugins.sql.target import Target
from onyx.plugins.sql.transaction import bounded_transaction
from onyx.plugins.sql.upsert import upsert


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

    def apply_runs(self, writer: str, number: int, runs: Sequence[Run]) -> bool:
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

    def _write(self, connection: Connection, run: Run) -> None:
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

    def forget(self, writer: str | None) -> None:
        """Delete the row of a writer, or all rows of the task."""
        self._positions.forget(writer)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @cached_property
    def _rows(self) -> Rows:
        target = self._target
        dialect = self._engine.dialect.name
        return Rows(self._context, self._table, target.columns, target.keys, dialect)

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
