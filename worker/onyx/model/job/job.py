"""A job as a value: what parsing gives, what the runtime reads, what is stored for the peers.

Frozen, typed and valid by construction: `parse_manifest` is the way to make one. Every field is a
key of the manifest, and parsing, the CRD and the reference pages are derived from it (`keys`). Two
eras of Onyx are united: keys that 0.14 dropped but an engine with acknowledgement needs
(`maxPending`, `pendingTimeout`, `uniquenessKey`), and keys that 0.10 to 0.14 added
(`storageStrategy`, `emit`, `delay`). Not taken over: `language` (there is one), the barrier keys,
`bulk?` and `restart-pred-fn` (gone from Onyx itself), and open keys (`options` takes their place,
so that a typo is found).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import field

from onyx.model.job.catalog import CatalogEntry
from onyx.model.job.flow_conditions import FlowCondition
from onyx.model.job.lifecycles import Lifecycle
from onyx.model.job.spark import Spark
from onyx.model.job.triggers import Trigger
from onyx.model.job.types import PEERS_MAX, PRIORITY_MAX, TRACKED_ONLY, TaskName, Time
from onyx.model.job.upgrade import Upgrade
from onyx.model.job.windows import Window
from onyx.model.keys.compound import Edge, ListOf, MapOf
from onyx.model.keys.key import EMPTY, NOT_A_KEY, Key
from onyx.model.keys.kinds import Function, Integer, Metadata, Text
from onyx.model.kinds import ACK_AGGREGATORS

TASKS_MAX = 256
EDGES_MAX = 1_024
DEPTH_MAX = 64
"""Longest path through a workflow, in edges."""


class Job(msgspec.Struct, frozen=True):
    """A job: its tasks, how segments flow between them, and what is guaranteed."""

    name: Annotated[str, NOT_A_KEY]
    """Stands under `metadata` in the manifest."""
    workflow: Annotated[
        tuple[tuple[str, str], ...],
        ListOf(Edge(), items_min=1, items_max=EDGES_MAX),
        Key(
            filled="a straight line in the order of the catalog: input, functions, output",
            origin="workflow",
            restriction=f"Starts with inputs and ends with outputs or reduce tasks; no edge "
            f"twice; at most {DEPTH_MAX} edges in a row.",
        ),
    ]
    """Edges [from, to] between tasks: a directed graph without cycles."""
    catalog: Annotated[
        tuple[CatalogEntry, ...],
        Key(
            items_max=TASKS_MAX,
            map_key="name",
            origin="catalog",
            restriction="Has an entry for every task of the workflow, and no other.",
        ),
    ]
    """The tasks."""
    task_scheduler: Annotated[
        Literal["balanced", "percentage", "colocated"], Key(origin="task-scheduler")
    ] = "balanced"
    """How the job's peers are distributed over its tasks."""
    local_only: Annotated[
        bool | None,
        Key(restriction="Only with taskScheduler: colocated."),
    ] = None
    """Whether segments of a colocated job stay in their process, but for groups. false: they go to
    all peers of a task in turn."""
    guarantee: Literal["at-most-once", "at-least-once", "exactly-once"] = "at-least-once"
    """How often the effect of each segment counts when something fails."""
    engine: Annotated[
        Literal["peers", "spark"],
        Key(restriction="spark over inputs with an end not together with upgrade."),
    ] = "peers"
    """What runs the job: `peers`, or `spark`, as one query of Spark with the same results. Keys
    about peers, batches and replays have no effect on Spark; a warning names them."""
    spark: Annotated[
        Spark | None,
        Key(
            restriction="Needs something that runs on Spark: the job, a window, a stage, an input."
        ),
    ] = None
    """Where and how Spark runs the job, or what it runs of it: windows with engine spark, stages,
    inputs with plugin spark."""
    flow_conditions: Annotated[tuple[FlowCondition, ...], Key(origin="flow-conditions")] = ()
    """Which segments go to which children."""
    lifecycles: Annotated[tuple[Lifecycle, ...], Key(origin="lifecycles")] = ()
    """Functions that are called around the work of tasks."""
    windows: Annotated[tuple[Window, ...], Key(items_max=TASKS_MAX, origin="windows")] = ()
    """Aggregations over segments, grouped into extents."""
    triggers: Annotated[tuple[Trigger, ...], Key(items_max=TASKS_MAX, origin="triggers")] = ()
    """When windows emit what they hold."""
    max_drift: Annotated[
        Time | None,
        Key(
            restriction="Needs an input with watermarkKey or assignWatermarkFn. Not with engine: "
            "spark."
        ),
    ] = None
    """How far partitions of inputs may be ahead in event time of the slowest that is neither idle
    nor ended: until that comes nearer, they are not read. By default each is read as fast as it
    can be."""
    upgrade: Annotated[
        Upgrade | None,
        Key(origin="resume-point", era="0.10+", restriction="Not for guarantee at-most-once."),
    ] = None
    """An old job that this one upgrades: it is killed, and its state is carried over."""
    ack_returns: Annotated[
        Mapping[str, str],
        MapOf(Text(characters_max=63), Function(ACK_AGGREGATORS), 64),
        Key(
            restriction="Needs an input that takes requests. Not for guarantee at-most-once, nor "
            "for engine spark."
        ),
    ] = field(default_factory=lambda: EMPTY)
    """What functions may give back to whoever sent a segment, by `ack_return(key, value)`, and how
    the values of one request are put together; a function of your own gets all of them as a
    list."""
    percentage: Annotated[
        int | None,
        Integer(0, 100, "percent"),
        Key(
            origin="percentage", restriction="A cluster with another job scheduler refuses the job."
        ),
    ] = None
    """Share of the cluster's peers, under the percentage job scheduler."""
    priority: Annotated[
        int,
        Integer(0, PRIORITY_MAX),
        Key(restriction="No higher than the cluster's quotas.priority."),
    ] = 0
    """Which jobs get peers where not all can run: those of a higher priority, even if others have
    to stop for them."""
    metadata: Annotated[Mapping[str, Any], Metadata(), Key(origin="metadata")] = field(
        default_factory=lambda: EMPTY
    )
    """Anything that should travel with the job. `jobId` is the id of the job, which makes
    submitting safe to repeat; without it, each submission gets a new id."""
    acker_percentage: Annotated[
        int,
        Integer(1, 100, "percent"),
        Key(origin="acker/percentage", era="0.9", restriction=TRACKED_ONLY),
    ] = 1
    """Share of the job's peers that are ackers; at least one peer is."""
    ackers: Annotated[
        int | None,
        Integer(1, PEERS_MAX, "ackers"),
        Key(restriction="Not together with ackerPercentage. " + TRACKED_ONLY),
    ] = None
    """How many of the job's peers are ackers; all that may be, if there are fewer. Ackers share
    the trees of segments among them."""
    acker_exempt_input_tasks: Annotated[
        bool, Key(origin="acker/exempt-input-tasks?", era="0.9", restriction=TRACKED_ONLY)
    ] = False
    """Peers of input tasks are no ackers."""
    acker_exempt_output_tasks: Annotated[
        bool, Key(origin="acker/exempt-output-tasks?", era="0.9", restriction=TRACKED_ONLY)
    ] = False
    """Peers of output tasks are no ackers."""
    acker_exempt_tasks: Annotated[
        tuple[TaskName, ...],
        Key(
            origin="acker/exempt-tasks",
            era="0.9",
            restriction="Tasks of the workflow. " + TRACKED_ONLY,
        ),
    ] = ()
    """Peers of these tasks are no ackers."""

    @property
    def loses_track(self) -> bool:
        """Whether it accounts for segments, and has some for which nobody does: of an input, a task
        or a flow condition that says so. Under at-most-once nothing is accounted for."""
        return self.guarantee != "at-most-once" and (
            any(entry.guarantee == "at-most-once" or not entry.anchored for entry in self.catalog)
            or any(not condition.anchored for condition in self.flow_conditions)
        )

    def entry(self, task: str) -> CatalogEntry:
        """The catalog entry of `task`; KeyError when there is none."""
        for entry in self.catalog:
            if entry.name == task:
                return entry
        raise KeyError(task)

    def late_children(self, task: str) -> frozenset[str]:
        """Children of a task that get its late segments: of its windows, or of a join."""
        named = {window.late_to for window in self.windows if window.task == task}
        named |= {entry.late_to for entry in self.catalog if entry.name == task}
        return frozenset(child for child in named if child is not None)
