"""The tasks of a job in one process of Spark: their programs, as on a peer but for the hooks.

What belongs to a running cluster is no part of a program: lineage, acks, channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.plugins.context import context_of
from onyx.plugins.protocol import Input, Output, PluginContext
from onyx.plugins.registry import build_input, build_output
from onyx.program.building import with_functions
from onyx.program.program import Program, event_of
from onyx.resolve import Resolver
from onyx.seams import Clock, SystemClock
from onyx.spark.compiler.compile import compile_job
from onyx.spark.compiler.plan import Plan
from onyx.spark.driver.request import QueryRequest
from onyx.spark_query.failure import failed
from onyx.structs import prepared
from onyx.telemetry.catalog import DEAD_LETTERS, LATE_SEGMENTS, UNMATCHED, Metric
from onyx.telemetry.interface import TaskMetrics


@prepared
class StageConfig(msgspec.Struct, frozen=True):
    """What a process of Spark must know of a query: the one value that is handed to it."""

    request: QueryRequest
    partitions: tuple[tuple[str, str], ...]
    """Input task and name of each partition, by number."""
    buckets: int
    """How many shares the groups of a task are in."""


class Tally(TaskMetrics):
    """Counts segments that do not go on; the rest of what a task reports is for peers."""

    __slots__ = ("counts", "notes")

    def __init__(self) -> None:
        self.counts = dict.fromkeys((DEAD_LETTERS, UNMATCHED, LATE_SEGMENTS), 0)
        self.notes: dict[Metric, str] = {}

    def add(self, metric: Metric, amount: float = 1) -> None:
        """Add to a counter."""
        if metric in self.counts:
            self.counts[metric] += int(amount)

    def note(self, metric: Metric, text: Callable[[], str]) -> None:
        """What the first of those is that a counter counts; made only if nothing is known yet."""
        if metric not in self.notes:
            self.notes[metric] = text()


class Query:
    """A query in one process."""

    def __init__(self, config: StageConfig) -> None:
        self.config = config
        self.request = config.request
        self.job: Job = parse_mapping(config.request.manifest)
        self.plan: Plan = compile_job(self.job, config.request.combine)
        self.clock: Clock = SystemClock()
        self._inputs: dict[str, Input] = {}
        self.resolve: Callable[[str], Callable[..., Any]] = Resolver(config.request.modules).resolve

    @property
    def peer(self) -> PeerId:
        """What failures and events name as the peer."""
        return PeerId(f"spark-{self.request.attempt}")

    def failure(self, task: str, phase: str, error: Exception) -> Exception:
        """What is raised when a task has failed."""
        return failed(
            self.request.job_id, task, self.peer, phase, error, self.request.report_values
        )

    def program(self, task: str) -> Program:
        """A task, ready to run; a new one with each call, because functions may keep state in its
        event.

        Raises:
            UserError: a function is not registered or not of the right kind.
        """
        job, entry, job_id = self.job, self.job.entry(task), JobId(self.request.job_id)
        event = event_of(self.peer, job_id, job, entry)
        program = Program(
            job_id, job, entry, event, self.clock, Tally(), self.request.report_values
        )
        return with_functions(program, self.resolve, self.request.fn_params.get(task, ()))

    def input(self, task: str) -> Input:
        """A new instance of the plugin of an input task."""
        plugin = self.job.entry(task).plugin
        assert plugin is not None, "validated: inputs name a plugin"
        return build_input(plugin, self.context(task))

    def kept_input(self, task: str) -> Input:
        """The input: it is instance for all micro-batches in this process: it may limit its
        rate."""
        if task not in self._inputs:
            self._inputs[task] = self.input(task)
        return self._inputs[task]

    def output(self, task: str, writer: str) -> Output:
        """A new instance of the plugin of an output task.

        Args:
            writer: what tells this process apart from the others of the query.
        """
        plugin = self.job.entry(task).plugin
        assert plugin is not None, "validated: outputs name a plugin"
        return build_output(plugin, self.context(task, writer))

    def context(self, task: str, writer: str = "") -> PluginContext:
        """What the plugin of a task is given.

        Args:
            writer: as of `output`.
        """
        request = self.request
        context = context_of(
            self.job,
            self.job.entry(task),
            JobId(request.job_id),
            self.peer,
            GroupId(request.incarnation),
            self.clock,
            self.resolve,
        )
        return replace(
            context, data_dir=request.data_dir, spark_master=request.master, writer=writer
        )


@lru_cache(maxsize=4)
def query_of(config: str) -> Query:
    """The query of a config in JSON; a process of Spark runs many tasks of the same one."""
    return Query(msgspec.json.decode(config, type=StageConfig))
