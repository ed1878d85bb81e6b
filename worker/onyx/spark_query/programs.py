"""The tasks of a job in one process of Spark: their programs, as on a peer but for the hooks.

What belongs to a running cluster is no part of a program: lineage, acks, channels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from onyx.base.seams import Clock, SystemClock
from onyx.ids import JobId, PeerId
from onyx.model.parsing.mapping import parse_mapping
from onyx.operators.building import with_functions
from onyx.program.program import Program, event_of
from onyx.spark.compiler.compile import compile_job
from onyx.spark_query.config import QueryConfig
from onyx.spark_query.counting import Tally
from onyx.spark_query.failure import failed
from onyx.spark_query.plugins import Plugins
from onyx.spark_query.tables import QueryTables
from onyx.user_code.resolve import Resolver


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

    def failure(self, task: str, phase: str, error: Exception) -> Exception:
        """What is raised when a task has failed."""
        return failed(
            self.request.job_id, task, self.peer, phase, error, self.request.report_values
        )

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
