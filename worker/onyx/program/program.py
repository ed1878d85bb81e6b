"""What one task of a job runs: its functions, conditions, groupings, windows and hooks.

Fixed once the job is loaded and its functions are resolved. A peer and a query of Spark make it by
the same call, so a task is the same on both. Rejected: one value with the plugin, the channels and
the assignment of a peer as well, because a query would then have to pretend that it is a peer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
import pyarrow as pa
from msgspec import field

from onyx.base.seams import Clock
from onyx.flow.conditions import Conditions
from onyx.flow.groups.grouping import Grouping
from onyx.ids import JobId, PeerId, TaskName
from onyx.joins.enrichment import Enrichment
from onyx.joins.kept import Kept
from onyx.joins.reading import Reading
from onyx.model.job import CatalogEntry, Job
from onyx.program.definition import Definition
from onyx.program.lifecycles import Event, Lifecycles
from onyx.telemetry.interface import TaskMetrics


class Routes(msgspec.Struct, frozen=True):
    """Where the segments of a task may go."""

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
    handles_failures: bool = False
    """Whether a segment that fails may go elsewhere: to dead letters, or by a condition."""


class Program(msgspec.Struct, frozen=True):
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
    join: Enrichment | Reading | None = None
    """What segments get from a table, or of what another task keeps, before the function has them.
    """
    kept: Kept | None = None
    """What another task keeps for the groups of a batch."""
    takes: Literal["dicts", "arrow"] | None = None
    """What its own code gets; None: it has none, and takes batches as they come."""
    schema: pa.Schema | None = None
    """The schema of the columns that it takes."""
    routes: Routes = Routes()
    """Where segments go."""
    operator: Definition | None = None
    """What keeps state between two batches; None: nothing does."""

    @property
    def task(self) -> TaskName:
        """The name of the task."""
        return TaskName(self.entry.name)

    @property
    def retries(self) -> bool:
        """Whether something may ask for retries: a flow condition, the function or a processor."""
        asks = self.routes.conditions is not None and self.routes.conditions.retries
        return self.fn is not None or self.has_inbox or asks

    @property
    def has_inbox(self) -> bool:
        """Whether the operator may leave a part of a batch."""
        return self.operator is not None and self.operator.needs.inbox

    @property
    def observed(self) -> bool:
        """Whether a function of the user's may look at the event. If not, the event holds no batch:
        it would keep memory alive that the next batch can use."""
        return bool(self.lifecycles.hooks) or self.routes.conditions is not None


def goes_on_in_trees(program: Program) -> bool:
    """Whether what the operator of a task makes of a segment goes on in the tree of that."""
    return program.operator is not None and program.operator.needs.in_trees


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
