"""The tables of a query in one process of Spark: each is read once there, when a task needs it.

Segments are joined where the tasks of a fragment are, in Python, by what joins them on peers: so a
table needs no shuffle, whatever its size, and rows are the same. One that is partitioned is dealt
to the buckets of the tasks that join it (`tables.dealt`). What is to be refreshed is read again
when a task of Spark begins and it is time: from its first segment to its last the rows stay.

Rejected: `broadcast(frame)` of Spark, for which each batch would have to become rows of the JVM and
come back; and broadcast variables, which Spark Connect lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from msgspec.structs import replace

from onyx.base.seams import Clock
from onyx.joins.shares import Dealing
from onyx.joins.table import Table
from onyx.model.job import CatalogEntry, Job
from onyx.model.workflow import looked_up
from onyx.plugins.protocol import Input
from onyx.plugins.registry import build_input
from onyx.spark_query.plugins import Plugins
from onyx.tables.dealt import DealtTable, deal_table
from onyx.tables.loading import load_table
from onyx.tables.shared import RefreshedTable, Replaceable

T = TypeVar("T", bound=Replaceable)
V = TypeVar("V")


class QueryTables:
    """The tables of one query."""

    def __init__(
        self, job: Job, plugins: Plugins, clock: Clock, bytes_max: int, buckets: int
    ) -> None:
        self._job, self._plugins, self._clock = job, plugins, clock
        self._bytes_max, self._buckets = bytes_max, buckets
        self._whole: dict[str, RefreshedTable[Table]] = {}
        self._dealt: dict[tuple[str, str], RefreshedTable[DealtTable]] = {}
        """By table and by the task that joins it: each groups by keys of its own."""

    def tend(self) -> None:
        """A task of Spark begins: read those again for which it is time."""
        for whole in self._whole.values():
            whole.tend()
        for dealt in self._dealt.values():
            dealt.tend()

    def of(
        self, task: CatalogEntry, bucket: Callable[[], int]
    ) -> Mapping[str, Callable[[], Table]]:
        """The tables that a task looks up.

        Args:
            bucket: whose segments it has now.

        Raises:
            Unavailable: one cannot be read now.
            UserError: one never can, or is too large.
        """
        return {name: self._found(self._job.entry(name), task, bucket) for name in looked_up(task)}

    def _found(
        self, entry: CatalogEntry, task: CatalogEntry, bucket: Callable[[], int]
    ) -> Callable[[], Table]:
        if not entry.partitioned:
            if entry.name not in self._whole:
                self._whole[entry.name] = self._refreshed(entry, load_table, _always)
            return self._whole[entry.name].now
        key = entry.name, task.name
        if key not in self._dealt:
            dealing = Dealing(entry, task, self._buckets)
            self._dealt[key] = self._refreshed(entry, deal_table, dealing)
        dealt = self._dealt[key]
        return lambda: dealt.now().part(bucket())

    def _refreshed(
        self,
        entry: CatalogEntry,
        load: Callable[[CatalogEntry, Input, int, V], T],
        how: V,
    ) -> RefreshedTable[T]:
        """What is loaded like this, and is there."""

        def read() -> T:
            assert entry.plugin is not None, "validated: a table names a plugin"
            context = replace(self._plugins.context(entry.name), batch_format="arrow")
            return load(entry, build_input(entry.plugin, context), self._bytes_max, how)

        refresh_s = None if entry.refresh is None else entry.refresh / 1000
        made = RefreshedTable(read, _at_once, self._clock, refresh_s)
        there = made.loaded()
        assert there, "it is loaded at once"
        return made


def _at_once(work: Callable[[], Any]) -> Future[Any]:
    """Run it while the caller waits: a process of Spark has one thread."""
    done = Future[Any]()
    try:
        done.set_result(work())
    except Exception as error:
        done.set_exception(error)
    return done


def _always() -> bool:
    return True
