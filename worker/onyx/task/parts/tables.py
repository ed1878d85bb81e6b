"""The tables of one task on one peer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from msgspec import field

from onyx.ids import JobId, TaskName
from onyx.joins.shares import Share
from onyx.joins.table import Table
from onyx.tables.shared import Load, SharedTable, SharedTables, TableId


class TableSource(msgspec.Struct, frozen=True):
    """Where the rows of a table come from."""

    load: Callable[[Share | None], Load]
    """What loads the rows of a share; None: all."""
    refresh_s: float | None
    partitioned: bool
    """Whether a peer has the rows of its groups only."""


class TaskTables(msgspec.Struct):
    """What a task looks up. Other tasks of the process may look up the same tables."""

    job_id: JobId
    task: TaskName
    shared: SharedTables
    sources: Mapping[str, TableSource]
    by_name: dict[str, SharedTable] = field(default_factory=dict)
    ids: dict[str, TableId] = field(default_factory=dict)
    left: bool = False

    def take(self, rank: int, peers: int) -> None:
        """Have the tables, and of those that are partitioned the part of a peer. A part of before
        goes first, so there is memory for one only.

        Args:
            rank: number of the peer among those of the task.
            peers: how many the task has.
        """
        for name, source in self.sources.items():
            share = Share(self.task, rank, peers) if source.partitioned else None
            which = TableId(self.job_id, name, share)
            if self.ids.get(name) == which:
                continue
            if name in self.ids:
                self.shared.leave(self.ids.pop(name))
            self.by_name[name] = self.shared.join(which, source.load(share), source.refresh_s)
            self.ids[name] = which

    @property
    def loaded(self) -> bool:
        """Whether all are there. Raises as `SharedTable.loaded`."""
        loaded = [table.loaded() for table in self.by_name.values()]  # they load side by side
        return all(loaded)

    @property
    def missing(self) -> list[str]:
        """The names of those that are not there yet."""
        return [
            name
            for name in self.sources
            if name not in self.by_name or not self.by_name[name].is_there
        ]

    @property
    def now(self) -> Mapping[str, Callable[[], Table]]:
        """Each of them, as it is now."""
        return {name: partial(self._now, name) for name in self.sources}

    def tend(self) -> None:
        """Have those read again for which it is time."""
        for table in self.by_name.values():
            table.tend()

    def leave(self) -> None:
        """The task ends. May be called again."""
        ids, self.left = () if self.left else tuple(self.ids.values()), True
        for which in ids:
            self.shared.leave(which)

    def _now(self, name: str) -> Table:
        return self.by_name[name].now()
