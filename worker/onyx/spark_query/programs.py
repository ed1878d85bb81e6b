"""The tasks of a job in one process of Spark: their programs, as on a peer but for the hooks, with
the plugins of their inputs and outputs, and the tables that they look up.

What belongs to a running cluster is no part of a program: lineage, acks, channels. What a process
must know of a query comes as text (`QueryConfig`).

A table is read once in each process, when a task needs it. Segments are joined where the tasks of a
fragment are, in Python, by what joins them on peers: so a table needs no shuffle, whatever its
size, and rows are the same. One that is partitioned is dealt to the buckets of the tasks that join
it (`tables.dealt`). What is to be refreshed is read again when a task of Spark begins and it is
time: from its first segment to its last the rows stay.

Rejected: `broadcast(frame)` of Spark, for which each batch would have to become rows of the JVM and
come back; and broadcast variables, which Spark Connect lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from onyx.base.seams import Clock, SystemClock
from onyx.base.structs import prepared
from onyx.flow.batch import Batch
from onyx.ids import GroupId, JobId, PeerId
from onyx.joins.shares import Dealing
from onyx.joins.table import Table
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.mapping import parse_mapping
from onyx.model.workflow import looked_up
from onyx.operators.building import with_functions
from onyx.plugins.context import context_of
from onyx.plugins.protocol import Input, Output, PluginContext
from onyx.plugins.registry import build_input, build_output
from onyx.program.program import Program, event_of
from onyx.spark.compiler.compile import compile_job
from onyx.spark.driver.request import QueryRequest
from onyx.spark_query.counting import Tally
from onyx.spark_query.failure import failed
from onyx.tables.dealt import DealtTable, deal_table
from onyx.tables.loading import load_table
from onyx.tables.shared import RefreshedTable, Replaceable
from onyx.user_code.resolve import Resolver

T = TypeVar("T", bound=Replaceable)
V = TypeVar("V")


class Query:
    """A query in one process."""

    def __init__(self, config: QueryConfig) -> None:
        self.config = config
        self.request = config.request
        self.job = parse_mapping(config.request.manifest)
        self.plan = compile_job(self.job, config.request.combine)
        self.clock: Clock = SystemClock()
        self.resolve: Callable[[str], Callable[..., Any]] = Resolver(config.request.modules).resolve
        self.plugins = Plugins(self.request, self.job, self.peer, self.clock, self.resolve)
        self.tables = QueryTables(
            self.job, self.plugins, self.clock, config.request.table_bytes_max, config.buckets
        )

    @property
    def peer(self) -> PeerId:
        """What failures and events name as the peer."""
        return PeerId(f"spark-{self.request.attempt}")

    def failure(
        self, task: str, phase: str, error: Exception, batch: Batch | None = None
    ) -> Exception:
        """What is raised when a task has failed, over a batch."""
        values = self.request.report_values
        return failed(self.request.job_id, task, self.peer, phase, error, values, batch)

    def program(self, task: str, bucket: Callable[[], int]) -> Program:
        """A task, ready to run; a new one with each call, because functions may keep state in its
        event.

        Args:
            bucket: whose segments it has now.

        Raises:
            UserError: a function is not registered or not of the right kind.
        """
        job, entry, job_id = self.job, self.job.entry(task), JobId(self.request.job_id)
        event = event_of(self.peer, job_id, job, entry)
        program = Program(
            job_id, job, entry, event, self.clock, Tally(), self.request.report_values
        )
        fn_params = self.request.fn_params.get(task, ())
        return with_functions(program, self.resolve, fn_params, self.tables.of(entry, bucket))


@lru_cache(maxsize=4)
def query_of(config: str) -> Query:
    """The query of a config in JSON; a process of Spark runs many tasks of the same one."""
    return Query(QueryConfig.of(config))


@prepared
class QueryConfig(msgspec.Struct, frozen=True):
    """What a process of Spark must know of a query: the one value that is handed to it."""

    request: QueryRequest
    partitions: tuple[tuple[str, str], ...]
    """Input task and name of each partition, by number."""
    buckets: int
    """How many shares the groups of a task are in."""

    @classmethod
    def of(cls, text: str) -> QueryConfig:
        """The config in this JSON."""
        return msgspec.json.decode(text, type=QueryConfig)

    def text(self) -> str:
        """The config in JSON."""
        return msgspec.json.encode(self).decode()


class Plugins:
    """Makes the plugins of one query."""

    def __init__(
        self,
        request: QueryRequest,
        job: Job,
        peer: PeerId,
        clock: Clock,
        resolve: Callable[[str], Callable[..., Any]],
    ) -> None:
        self._request = request
        self._job = job
        self._peer = peer
        self._clock = clock
        self._resolve = resolve
        self._inputs: dict[str, Input] = {}

    def input(self, task: str) -> Input:
        """A new instance of the plugin of an input task."""
        plugin = self._job.entry(task).plugin
        assert plugin is not None, "validated: inputs name a plugin"
        return build_input(plugin, self.context(task))

    def kept_input(self, task: str) -> Input:
        """The input, one instance for all micro-batches in this process: it may limit its
        rate."""
        if task not in self._inputs:
            self._inputs[task] = self.input(task)
        return self._inputs[task]

    def output(self, task: str, writer: str) -> Output:
        """A new instance of the plugin of an output task.

        Args:
            writer: what tells this process apart from the others of the query.
        """
        plugin = self._job.entry(task).plugin
        assert plugin is not None, "validated: outputs name a plugin"
        return build_output(plugin, self.context(task, writer))

    def context(self, task: str, writer: str = "") -> PluginContext:
        """What the plugin of a task is given.

        Args:
            writer: as of `output`.
        """
        request = self._request
        context = context_of(
            self._job,
            self._job.entry(task),
            JobId(request.job_id),
            self._peer,
            GroupId(request.incarnation),
            self._clock,
            self._resolve,
        )
        return replace(
            context,
            rights=request.rights,
            data_dir=request.data_dir,
            spark_master=request.master,
            writer=writer,
        )


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
