"""The tables of a query in one process of Spark: each is read once there, when a task needs it.

Segments are joined where the tasks of a fragment are, in Python, by what joins them on peers: so a
table needs no shuffle, whatever its size, and rows are the same. Rejected: `broadcast(frame)` of
Spark, for which each batch would have to become rows of the JVM and come back; and broadcast
variables, which Spark Connect lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from msgspec.structs import replace

from onyx.joins.table import Table
from onyx.model.job import CatalogEntry, Job
from onyx.model.tables import looked_up
from onyx.plugins.registry import build_input
from onyx.spark_query.plugins import Plugins
from onyx.tables.loading import load_table


class QueryTables:
    """The tables of one query."""

    def __init__(self, job: Job, plugins: Plugins, bytes_max: int) -> None:
        self._job, self._plugins, self._bytes_max = job, plugins, bytes_max
        self._loaded: dict[str, Table] = {}

    def of(self, entry: CatalogEntry) -> Mapping[str, Callable[[], Table]]:
        """The tables that a task looks up.

        Raises:
            Unavailable: one cannot be read now.
            UserError: one never can, or is too large.
        """
        return {name: partial(self._table, name) for name in looked_up(entry)}

    def _table(self, name: str) -> Table:
        if name not in self._loaded:
            entry = self._job.entry(name)
            assert entry.plugin is not None, "validated: a table names a plugin"
            context = replace(self._plugins.context(name), batch_format="arrow")
            plugin = build_input(entry.plugin, context)
            self._loaded[name] = load_table(entry, plugin, self._bytes_max, lambda: True)
        return self._loaded[name]
