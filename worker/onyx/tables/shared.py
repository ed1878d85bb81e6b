"""The tables that the tasks of a worker look up, each once, however many tasks have it.

A table is loaded when the first task asks for it, and dropped when the last one has left. The task
that steps next when it is time has it read again; then all tasks have the new one at once, each
from its next batch on.

Rejected: a peer that reads the table and sends it to all processes. Each process would hold it
twice while it travels, and a new one would have to be told apart from one that had it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from onyx.base.seams import Clock
from onyx.ids import JobId
from onyx.joins.asked import AskedTable
from onyx.joins.shares import Share
from onyx.joins.table import Table
from onyx.tables.refreshed import Refreshed, Run

Load = Callable[[Callable[[], bool]], Table]
"""Loads a table. Gets a function that is false when nobody waits for it any more."""


class TableId(NamedTuple):
    """A table, or a part of it, in a process."""

    job: JobId
    name: str
    share: Share | None
    """Whose part it is; None: the whole table."""


class SharedTable(Refreshed[Table]):
    """One table of one job in this process. Any thread may call."""

    def __init__(self, load: Load, run: Run, clock: Clock, refresh_s: float | None) -> None:
        """`load`: its function says whether a task still waits. Others as of `Refreshed`."""
        super().__init__(lambda: load(self._is_wanted), run, clock, refresh_s)
        self._asked: AskedTable | None = None
        self.users = 0

    def asked(self) -> AskedTable:
        """The table as questions see it. Takes long the first time."""
        table, asked = self.now(), self._asked
        if asked is None or asked.table is not table:
            asked = AskedTable(table)
            with self._lock:
                # It holds the table, which may have been replaced meanwhile.
                self._asked = asked if self._table is table else None
        return asked

    def _take(self, table: Table) -> None:
        super()._take(table)
        self._asked = None

    def _is_wanted(self) -> bool:
        return self.users > 0


class SharedTables:
    """The tables of the jobs of a process. Any thread may call."""

    def __init__(self, run: Run, clock: Clock) -> None:
        """`run`: runs what may take long, on a thread of its own."""
        self._run, self._clock = run, clock
        self._lock = Lock()
        self._tables: dict[TableId, SharedTable] = {}

    def join(self, which: TableId, load: Load, refresh_s: float | None) -> SharedTable:
        """A table, for one more task."""
        with self._lock:
            table = self._tables.get(which)
            if table is None:
                table = SharedTable(load, self._run, self._clock, refresh_s)
                self._tables[which] = table
            table.users += 1
            return table

    def leave(self, which: TableId) -> None:
        """A task does not look it up any more."""
        with self._lock:
            table = self._tables[which]
            table.users -= 1
            if not table.users:
                del self._tables[which]
