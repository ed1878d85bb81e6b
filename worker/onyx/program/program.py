"""What one task of a job runs: its functions, conditions, groupings and hooks, and what the job
says of its state.

Fixed once the job is loaded and its functions are resolved. A peer and a query of Spark make it by
the same call, so a task is the same on both. Rejected: one value with the plugin, the channels and
the assignment of a peer as well, because a query would then have to pretend that it is a peer.

Each kind of operator has a definition of its own, which is a value, made once of the job. What runs
it is an operator (`operator`), which `operators.table` finds for it, so whoever runs a program
never asks which kind it is. What the task around an operator must give or must not do is said here
too (`Needs`): it is known before there is any state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import field

from onyx.base.on_demand import OnDemand
from onyx.base.seams import Clock
from onyx.flow.conditions import Conditions
from onyx.flow.groups.getters import KeyGetter
from onyx.flow.groups.grouping import Grouping
from onyx.flow.groups.keys import shard_of
from onyx.ids import JobId, PeerId, TaskName
from onyx.keystate.coded import GroupKeys
from onyx.keystate.groups import Shards, only_shard
from onyx.model.job import CatalogEntry, Job
from onyx.program.failure import FirstFailures
from onyx.program.lifecycles import Event, Lifecycles
from onyx.telemetry.interface import TaskMetrics

if TYPE_CHECKING:
    from onyx.joins.enrichment import Enrichment
    from onyx.joins.kept import ForeignState, Reading


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


# --- state --------------------------------------------------------------------------------------


class Needs(NamedTuple):
    """What an operator needs of the task around it, beside groups."""

    parents_apart: bool = False
    """A batch is of one parent, which it names."""
    inbox: bool = False
    """The operator may leave a part of a batch, which comes again when it may take that."""
    user_code_at_start: bool = False
    """To begin it calls code of the user's."""
    absorbs: bool = False
    """What comes to the task goes no further: only what the operator emits does."""
    answers: bool = True
    """What it emits belongs to the requests that have brought the segments."""
    in_trees: bool = False
    """What it makes of a segment goes on in the tree of that, when it is durable."""
    engine: bool = False
    """Another engine keeps a part of the state in files."""


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """An operator as the job describes it."""

    task: str
    fed_by: frozenset[str]
    """Tasks upstream that begin trees: when they have ended, this one ends."""
    group_key: KeyGetter | None = None
    """How segments are grouped; None: they are not."""
    group_keys: GroupKeys = field(default_factory=GroupKeys)
    """The group keys of columns."""
    is_split: bool = True
    """Whether the state is split by key groups."""
    unique_key: str | None = None
    """The key by which segments are recognized that the source itself repeats."""
    late_to: tuple[str, ...] = ()
    """Children that get late segments."""

    needs: Needs = Needs()
    """What it needs of the task around it."""
    is_cooperative: bool | None = None
    """Whether its code returns soon; None: the job says so."""

    words: ClassVar[str]
    """What is at fault when the operator raises, for people."""
    made_by: ClassVar[OnDemand[Callable[..., Any]]]
    """Makes the operator (`operators.table.Make`)."""

    @property
    def is_in_buckets(self) -> bool:
        """Whether buckets of a query of Spark share the key groups; else one has all of them."""
        return self.is_split and self.group_key is not None

    def shards(self) -> Shards:
        """What gives the key groups of groups; it knows none that somebody has."""
        return Shards(shard_of if self.is_split else only_shard)

    def key_of(self, parent: str | None) -> KeyGetter | None:
        """How segments of a parent are grouped."""
        return self.group_key


# --- the program --------------------------------------------------------------------------------


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
    kept: ForeignState | None = None
    """What another task keeps for the groups of a batch."""
    takes: Literal["dicts", "arrow"] | None = None
    """What its own code gets; None: it has none, and takes batches as they come."""
    schema: pa.Schema | None = None
    """The schema of the columns that it takes."""
    routes: Routes = Routes()
    """Where segments go."""
    operator: Definition | None = None
    """What keeps state between two batches; None: nothing does."""
    first_failures: FirstFailures | None = None
    """Counts them; None: nobody wants to know."""

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
