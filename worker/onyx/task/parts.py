"""The parts of a task, by how long each of them lives. Data only: phases decide.

* `Assignment`: who works on which task, and in which process. As long as the peer has the task.
* `Program`: what the task runs. From when the job is loaded on; whole once the plugin is built.
* `Allocation`: connections and state. One allocation version of the job.
* `Work`: one batch on its way through the phases.
* `Status`: how the task gets on. Written by its own thread only, read by others as well.

A function takes the parts that it uses, so that its signature says what it can touch. Handing the
whole task to every function was rejected: then each of them may change everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from onyx.flow.batch import U64, Batch
from onyx.flow.conditions import Conditions
from onyx.flow.group_checks import GroupChecks
from onyx.flow.group_hashes import Grouping
from onyx.flow.key_getters import KeyGetter
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Routed
from onyx.ids import JobId, PeerId, TaskName
from onyx.ledger.retry_delay import RetryDelay
from onyx.model.job import CatalogEntry, Job
from onyx.plugins.attempts import Attempts
from onyx.plugins.protocol import SealProgress
from onyx.program.lifecycles import Event, Lifecycles
from onyx.replica.command import Command
from onyx.replica.state import JobRun, Replica
from onyx.seams import Clock
from onyx.spark.driver.driver import Driver
from onyx.task.acking.owners import Owners
from onyx.task.acking.sender import AckSender
from onyx.task.background import Background
from onyx.task.batch_sizing import BatchSizing
from onyx.task.batch_timer import BatchTimer
from onyx.task.channels.event_time import EventTime
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import Site, Wiring
from onyx.task.delivery.end_of_input import EndOfInput
from onyx.task.delivery.policy import Delivery
from onyx.task.services import Services
from onyx.task.sink.exactly_once import Committing
from onyx.task.sink.sink import Sink
from onyx.task.source.batch_timeout import Filling
from onyx.task.source.source import Source
from onyx.task.table import Kind
from onyx.task.windowed.state import Windowing
from onyx.telemetry.interface import TaskMetrics
from onyx.transport.interface import Control, Inbox
from onyx.windows.coded import GroupKeys, Keyed
from onyx.windows.compiled import CompiledWindows
from onyx.windows.prepared import Prepared


class LatestRun:
    """The running half of a job, by the newest replica. Each batch asks, and most find the replica
    that the last one found."""

    __slots__ = ("_job_id", "_newest", "_replica", "_run")

    def __init__(self, newest: Callable[[], Replica], job_id: JobId) -> None:
        """`newest`: the newest replica of this process."""
        self._newest = newest
        self._job_id = job_id
        self._replica: Replica | None = None
        self._run: JobRun

    def __call__(self) -> JobRun:
        """The run as of now; an empty one when the job does not run."""
        replica = self._newest()
        if replica is not self._replica:
            self._replica, self._run = replica, replica.run(self._job_id)
        return self._run


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which peer works on which task of which job, and the process that both are in."""

    services: Services
    peer: PeerId
    job_id: JobId
    task: TaskName
    kind: Kind
    wake: Callable[[], None]
    """Step the task soon; from any thread."""
    wanted: Callable[[], bool]
    """False as soon as a Stop was posted, though the task may not have read it yet."""
    background: Background
    latest_run: LatestRun

    @property
    def clock(self) -> Clock:
        """The clock of the process."""
        return self.services.clock

    def propose(self, command: Command) -> None:
        """Write a command to the log on behalf of this peer."""
        self.services.propose(self.peer, command)

    @property
    def retry_delay(self) -> RetryDelay:
        """Before a retry that a flow condition asks for."""
        ledger = self.services.settings.ledger
        return RetryDelay(ledger.retry_delay_s, ledger.retry_delay_max_s)


@dataclass(slots=True)
class Registration:
    """The registration of the partitions of the task, by the log; once a job."""

    proposed: bool = False
    names: list[str] | None = None
    """The names of all partitions of an input, once they are known."""


@dataclass(slots=True)
class LatestProgress:
    """The progress of a seal that runs."""

    value: SealProgress | None = None


@dataclass(frozen=True, slots=True)
class Windowed:
    """What a task with windows runs besides."""

    compiled: CompiledWindows
    group_key: KeyGetter | None
    """None: the state is not split."""
    unique_key: str | None
    """The key by which a window recognizes segments that the source itself repeats."""
    late_to: tuple[str, ...]
    """Children that get late segments."""
    fed_by: frozenset[str]
    """Inputs and windowed tasks upstream: when they have ended, this one ends."""
    functions: Mapping[str, Callable[..., Any]]
    """The functions that triggers name."""
    group_keys: GroupKeys = field(default_factory=GroupKeys)
    """The group keys of columns."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is fixed once the job is loaded and its functions are resolved."""

    assignment: Assignment
    job: Job
    entry: CatalogEntry
    lifecycles: Lifecycles
    event: Event
    """What the user's functions get and may add to."""
    metrics: TaskMetrics
    delivery: Delivery
    sizing: BatchSizing
    """How many segments a batch may have."""
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
    source: Source | None = None
    sink: Sink | None = None
    driver: Driver | None = None
    """The driver of a job that Spark runs."""
    sends_to: tuple[str, ...] = ()
    """Children that get what the task makes. Others get only what is late, or dead letters."""
    children: tuple[str, ...] = ()
    """All of them."""
    windowed: Windowed | None = None
    report_values: bool = True
    """Whether what is in a segment may be shown to people."""
    registration: Registration = field(default_factory=Registration)
    seal_progress: LatestProgress = field(default_factory=LatestProgress)

    @property
    def job_id(self) -> JobId:
        """The job of the assignment."""
        return self.assignment.job_id

    @property
    def task(self) -> TaskName:
        """The task of the assignment."""
        return self.assignment.task

    @property
    def services(self) -> Services:
        """The process."""
        return self.assignment.services

    @property
    def clock(self) -> Clock:
        """The clock of the process."""
        return self.services.clock

    @property
    def retries(self) -> bool:
        """Whether a flow condition asks for retries."""
        return self.conditions is not None and self.conditions.retries

    @property
    def observed(self) -> bool:
        """Whether a function of the user's may look at the event. If not, the event holds no batch:
        it would keep memory alive that the next batch can use."""
        return bool(self.lifecycles.hooks) or self.conditions is not None


@dataclass(slots=True)
class Allocation:
    """What belongs to one allocation version. Nothing of it outlives the version: what was in
    flight is replayed, and frames of an older version are refused."""

    wiring: Wiring
    outbox: Outbox
    acks: AckSender
    inbox: Inbox
    filling: Filling
    """The filling of batches from the inbox."""
    ends: EndOfInput
    group_checks: GroupChecks
    """What children cannot be sent."""
    event_time: EventTime | None = None
    """None where neither this task nor one downstream has windows that need it."""
    ready: bool = False
    """All peers of the job are ready for this version."""
    owners: Owners | None = None
    """The owners of partitions; known when the job is ready."""
    exhaust_proposed: bool = False
    flush_wanted: bool = False
    """The plugin of an output is to make durable what it holds."""
    committing: Committing | None = None
    """The commits of an exactly-once output."""
    windowing: Windowing | None = None
    """The state of a windowed task, once it is recovered."""
    retries: list[tuple[Site, U64, int]] = field(default_factory=list)
    """Retries to ask for, with how many there may be, that the transport has not taken yet."""


@dataclass(slots=True)
class Parts:
    """The parts of what was read at once and is worked on in parts: because it has suspects, is too
    large, or has segments of several forms."""

    waiting: deque[Batch] = field(default_factory=deque)
    suspects: int = 0
    """The last so many parts are one suspect each."""
    controls: list[tuple[PeerId, Control]] = field(default_factory=list)
    """Came with the batch, and go on with the last part."""


@dataclass(slots=True)
class Work:
    """The batch on its way through the phases, and what each phase has added to it."""

    timer: BatchTimer
    batch: Batch | None = None
    beside: list[Batch] = field(default_factory=list)
    """Segments of other forms that were read with the batch, before they are its parts."""
    leaves: Leaves | None = None
    """What the function has made of the batch."""
    groups: Keyed | None = None
    """Group keys of the batch's segments, for windows."""
    prepared: Prepared | None = None
    """What windows need of the leaves."""
    routed: Routed | None = None
    """Where everything goes, and what has failed."""
    controls: list[tuple[PeerId, Control]] = field(default_factory=list)
    """Control items behind the batch, each with the peer that sent it."""
    parts: Parts = field(default_factory=Parts)
    """Parts of the batch that was read which are still to come."""
    own: bool = False
    """In a stage, whether the batch was read from its own result, and not from the inbox."""
    upstream: TaskName | None = None
    """In a stage, the task whose segments these are."""
    others: deque[tuple[TaskName, Batch]] = field(default_factory=deque)
    """In a stage, what came together with them from other tasks."""
    behind: list[tuple[PeerId, Control]] = field(default_factory=list)
    """Control items behind all of these."""
    alone: bool = False
    """Whether the batch is one suspect: no other task of the process may run user code."""

    def take(self, batches: list[Batch]) -> None:
        """What was read: a batch of each form."""
        self.batch, self.beside = (batches[0], batches[1:]) if batches else (None, [])

    def forget_batch(self) -> None:
        """The batch is done, or of an old allocation version."""
        self.batch = self.leaves = self.groups = self.prepared = self.routed = None
        self.alone = False

    def forget_all(self) -> None:
        """A new allocation version: control items and waiting parts came on old channels."""
        self.forget_batch()
        self.controls, self.parts = [], Parts()
        self.behind = []
        self.others.clear()


@dataclass(frozen=True, slots=True)
class Restart:
    """The peer of a failed task is to be replaced."""

    due_s: float
    afresh: bool
    """Restarts before this one do not count."""


@dataclass(slots=True)
class Status:
    """How a task gets on. All times are monotonic, in seconds."""

    started: bool = False
    """Whether before_task_start was called, so that after_task_stop is due."""
    failed: bool = False
    restart: Restart | None = None
    """What a failed task waits for."""
    ready_since_s: float | None = None
    """When it first began to work."""
    step_since_s: float | None = None
    """Since when its thread is in its present step; None between two."""
    obstacle: str = ""
    """What was Unavailable when the present phase was tried last."""
    log_waiting_s: float | None = None
    """When to log what the phase waits for, if it still waits then."""
    superseded_s: float | None = None
    """Since when another peer owns what this one has begun; None again with a new version."""
    retry_after_s: float = 0.0
    """`start_task` and sealing are not tried again before."""
    batches: int = 0
    """How often the task has come to the end of its loop."""


@dataclass(slots=True)
class Sealing:
    """The sealing of an output whose peer was elected to seal it."""

    wanted: bool = False
    attempts: Attempts = field(default_factory=Attempts)
