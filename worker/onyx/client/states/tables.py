"""Tables that tasks look up: their rows by key, and each version of a row with its extent of time.

A table is whole in each process that has a peer of such a task, or split by the groups of a task.
So peers of the first task that looks it up are asked: one of them, as any copy is as good, or those
that have the groups. It is in no state log. So its answers are as durable as they get:
another process reads it anew in its source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from onyx.client.states.checks import require_no_times, require_parts, require_peers
from onyx.client.states.shards import by_group
from onyx.client.states.state import Files, Restored
from onyx.errors import UserError
from onyx.flow.predicates import Resolve
from onyx.joins.shares import names_of
from onyx.keystate.extents import ALL
from onyx.keystate.selection import Selection
from onyx.model.job import CatalogEntry, Job
from onyx.model.workflow import looked_up
from onyx.transport.state_queries import TABLE

_TIMES = ("timestamp", "date")


class TableState(msgspec.Struct, frozen=True):
    """A table. Implements `State`."""

    job: Job
    table: CatalogEntry
    by: CatalogEntry
    """The first task that looks it up."""

    in_store = by_files = False
    by_session_key = False
    grouped = True

    @property
    def name(self) -> str:
        """Its name."""
        return self.table.name

    @property
    def asked_as(self) -> str:
        """Apart from windows and states that are called the same."""
        return TABLE + self.name

    @property
    def task(self) -> str:
        """The task that has it."""
        return self.by.name

    @property
    def kind(self) -> str:
        """With what makes a difference."""
        words = "partitioned" if self.table.partitioned else ""
        versions = "with versions" if self.table.version_key is not None else ""
        return " ".join(filter(None, (words, "table", versions)))

    @property
    def in_time(self) -> bool:
        """Whether its schema says that versions begin at times."""
        key = self.table.version_key
        return key is not None and (self.table.schema or {}).get(key) in _TIMES

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: it is not here, or has no times or no such key."""
        require_peers(self.job)
        require_parts(select, names_of(self.table.key), f"table {self.name}")
        if self.table.version_key is None:
            require_no_times(select, f"table {self.name}, which has no versions,")

    def shards(self, key: Any) -> Sequence[int]:
        """The key group of a group, or all; the first of a table that is whole."""
        if not self.table.partitioned:
            return [0]
        return by_group(key if key is ALL else self._group(key))

    def _group(self, key: Any) -> Any:
        """The group of the task whose segments find a key."""
        assert self.by.join is not None, "validated: only a join looks up a partitioned table"
        its, groups = names_of(self.table.key), self.by.join.keys
        if len(its) == 1:
            return key
        assert isinstance(key, Mapping), "checked"
        return {group: key[mine] for mine, group in zip(its, groups, strict=True)}

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], Restored]:
        """Raises UserError: it is in no state log."""
        raise UserError(
            f"no peer works on task {self.task}, and table {self.name} is only in the memory of "
            "workers that look it up: read its source"
        )


def tables_of(job: Job) -> Iterator[TableState]:
    """The tables of a job."""
    for table in job.catalog:
        if table.type == "table":
            by = next(each for each in job.catalog if table.name in looked_up(each))
            yield TableState(job, table, by)
