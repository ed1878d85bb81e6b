"""What one task of a job runs: its functions, conditions, groupings, windows and hooks.

Fixed once the job is loaded and its functions are resolved. A peer and a query of Spark make it by
the same call, so a task is the same on both. Rejected: one value with the plugin, the channels and
the assignment of a peer as well, because a query would then have to pretend that it is a peer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from onyx.flow.apply import resolve_params
from onyx.flow.columns.schemas import arrow_schema
from onyx.flow.conditions import Conditions, children_of, compile_conditions, everything_to
from onyx.flow.groups.getters import key_getter
from onyx.flow.groups.grouping import Grouping
from onyx.flow.predicates import Resolve
from onyx.ids import JobId, PeerId, TaskName
from onyx.model.job import CatalogEntry, Job
from onyx.model.workflow import children
from onyx.program.lifecycles import Event, Lifecycles
from onyx.program.windows import Windowed, compiled, sends_to
from onyx.seams import Clock
from onyx.telemetry.interface import TaskMetrics


@dataclass(frozen=True, slots=True)
class Program:
    """One task of a job, ready to run; in part, until `with_functions`."""

    job_id: JobId
    job: Job
    entry: CatalogEntry
    event: Event
    """What the user's functions get and may add to."""
    clock: Clock
    metrics: TaskMetrics
    report_values: bool = True
    """Whether what is in a segment may be shown to people."""
    lifecycles: Lifecycles = field(default_factory=Lifecycles)
    fn: Callable[..., Any] | None = None
    takes: Literal["dicts", "arrow"] | None = None
    """What its own code gets; None: it has none, and takes batches as they come."""
    schema: pa.Schema | None = None
    """The schema of the columns that it takes."""
    conditions: Conditions | None = None
    """About what is sent on."""
    own_conditions: Conditions | None = None
    """About the segments of a task that sends none of them on: exceptions only."""
    groupings: Mapping[str, Grouping] = field(default_factory=dict)
    """The groupings of the children that group."""
    sends_to: tuple[str, ...] = ()
    """Children that get what the task makes. Others get only what is late, or dead letters."""
    children: tuple[str, ...] = ()
    """All of them."""
    windowed: Windowed | None = None

    @property
    def task(self) -> TaskName:
        """The name of the task."""
        return TaskName(self.entry.name)

    @property
    def retries(self) -> bool:
        """Whether a flow condition asks for retries."""
        return self.conditions is not None and self.conditions.retries

    @property
    def observed(self) -> bool:
        """Whether a function of the user's may look at the event. If not, the event holds no batch:
        it would keep memory alive that the next batch can use."""
        return bool(self.lifecycles.hooks) or self.conditions is not None


def event_of(peer: PeerId, job_id: JobId, job: Job, entry: CatalogEntry) -> Event:
    """What the user's functions get, before anything is built.

    Args:
        peer: what works on the task.
    """
    return {
        "id": peer,
        "job_id": job_id,
        "job_name": job.name,
        "task": entry.name,
        "workflow": job.workflow,
        "catalog": job.catalog,
        "task_map": entry,
        "flow_conditions": job.flow_conditions,
        "lifecycles": job.lifecycles,
        "metadata": job.metadata,
        "cooperative": entry.cooperative,
    }


def with_functions(program: Program, resolve: Resolve, fn_params: Sequence[Any]) -> Program:
    """The program with all functions that the job names for the task.

    Args:
        fn_params: leading arguments of the task's function that the worker was started with.

    Raises:
        UserError: a function is not registered or not of the right kind.
    """
    name, job, entry = program.task, program.job, program.entry
    fn = resolve(entry.fn) if entry.fn is not None else None
    conditions, below = compile_conditions(job, name, resolve), children_of(job, name)
    program.event.update(params=resolve_params({name: fn_params}, entry), fn=fn)
    return dataclasses.replace(
        program,
        fn=fn,
        takes=_takes(program),
        schema=arrow_schema(entry),
        groupings=_groupings(job, name, resolve),
        conditions=conditions,
        own_conditions=_own_conditions(entry, conditions, below),
        children=below,
        sends_to=sends_to(job, name),
        windowed=compiled(job, name, resolve),
    )


def _takes(program: Program) -> Literal["dicts", "arrow"] | None:
    """What the functions and hooks of a task get."""
    entry = program.entry
    looks = any(map(program.lifecycles.has, ("after_read_batch", "after_apply_fn", "after_batch")))
    own = entry.fn is not None or looks
    return entry.batch_format if own or entry.batch_format == "arrow" else None


def _own_conditions(
    entry: CatalogEntry, conditions: Conditions | None, below: tuple[str, ...]
) -> Conditions | None:
    """The conditions of a task whose segments go nowhere (outputs, stages of Spark and reduce
    tasks): exceptions only."""
    goes_on = entry.type in ("input", "function") and entry.spark_stage is None
    return conditions if goes_on else (conditions or everything_to(below)).of_exceptions()


def _groupings(job: Job, task: str, resolve: Resolve) -> dict[str, Grouping]:
    entries = [job.entry(child) for child in children(job.workflow)[task]]
    getters = [(entry, key_getter(entry, resolve)) for entry in entries]
    return {entry.name: Grouping(get, entry) for entry, get in getters if get is not None}
