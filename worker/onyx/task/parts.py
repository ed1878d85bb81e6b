"""The parts of a task, by how long each of them lives.

* `Assignment`: who works on which task, and in which process. As long as the peer has the task.
* `Runtime`: the program of the task, and what a peer needs to run it. From when the job is loaded
  on; whole once the plugin is built.
* `Allocation`: connections and state. One allocation version of the job.
* `Work`: one batch on its way through the phases.
* `TaskStatus`: how the task gets on. Written by its own thread only, read by others as well.

Data, and what follows from it alone: phases decide. A function takes the parts that it uses, so
that its signature says what it can touch. Handing the whole task to every function was rejected:
then each of them may change everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import msgspec
from immutables import Map
from msgspec import field

from onyx.base.on_demand import OnDemand
from onyx.base.runs import Numbers
from onyx.base.seams import Clock
from onyx.flow.batch import Batch
from onyx.flow.groups.grouping import GroupChecks
from onyx.ids import NO_POSITION, AllocationVersion, JobId, PeerId, Position, TaskName
from onyx.ledger.retry_delay import RetryDelay
from onyx.ledger.returns import Trees
from onyx.model.changing import with_options
from onyx.model.job import Job
from onyx.model.parsing.mapping import stored_job
from onyx.plugins.attempts import Attempts
from onyx.program.batch_work import BatchWork
from onyx.program.outcomes import NOBODY, Answering
from onyx.program.program import Program
from onyx.replica.command import Command
from onyx.replica.commands.register_partitions import RegisterPartitions
from onyx.replica.commands.signal_ready import signal
from onyx.replica.state import NOTHING, JobRun, Replica
from onyx.tables.shared import TaskTables
from onyx.task.acking.owners import Owners
from onyx.task.acking.sender import AckSender
from onyx.task.batching import BatchSizing, BatchTimer, Filling
from onyx.task.channels.alignment import Alignment
from onyx.task.channels.combining import Combiners
from onyx.task.channels.edges import Edges
from onyx.task.channels.event_time import EventTime
from onyx.task.channels.lookups import Lookups
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import Site, Wiring
from onyx.task.delivery import DeliveryPolicy, EndOfInput
from onyx.task.seal_progress import LatestProgress
from onyx.task.services import Services
from onyx.task.sink.exactly_once import OutputCommits
from onyx.task.sink.sink import Sink
from onyx.task.source.source import Source
from onyx.task.state.keeper import StateKeeper
from onyx.task.table import ADVANCED, Answer, TaskKind
from onyx.telemetry.interface import TaskMetrics
from onyx.transport.interface import Control, Inbox, Partial

T = TypeVar("T")
_SAVEPOINT_LOADED: OnDemand[Callable[[Assignment, Job], bool]]
_SAVEPOINT_LOADED = OnDemand("onyx.task.recovery.savepoint:savepoint_loaded")


# --- who works on what --------------------------------------------------------------------------


class Assignment(msgspec.Struct, frozen=True):
    """Which peer works on which task of which job, and the process that both are in."""

    services: Services
    peer: PeerId
    job_id: JobId
    task: TaskName
    kind: TaskKind
    wake: Callable[[], None]
    """Step the task soon; from any thread."""
    wanted: Callable[[], bool]
    """False as soon as a Stop was posted, though the task may not have read it yet."""
    background: PolledWork
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


def assign(
    services: Services,
    peer: PeerId,
    job_id: JobId,
    task: TaskName,
    kind: TaskKind,
    wake: Callable[[], None],
    wanted: Callable[[], bool],
) -> Assignment:
    """An assignment that a peer has got."""
    background, latest = PolledWork(services.background, wake), LatestRun(services.replica, job_id)
    return Assignment(services, peer, job_id, task, kind, wake, wanted, background, latest)


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


class PolledWork:
    """Work off the task's thread: each piece is started once, by its name, and polled."""

    def __init__(
        self, run: Callable[[Callable[[], Any]], Future[Any]], wake: Callable[[], None]
    ) -> None:
        self._run = run
        self._wake = wake
        self._futures: dict[str, Future[Any]] = {}

    def poll(self, name: str, work: Callable[[], T]) -> T | None:
        """The result of the work, which is started if it has not been; None while it runs.

        Raises:
            Exception: what the work has raised.
        """
        future = self._futures.get(name)
        if future is None:
            future = self._futures[name] = self._run(work)
            future.add_done_callback(lambda _: self._wake())
        if not future.done():
            return None
        del self._futures[name]
        result: T = future.result()
        return result

    def forget(self) -> None:
        """Nobody waits for what runs now: it is of an old version, or is started again."""
        self._futures.clear()


def load(assignment: Assignment) -> Job | None:
    """The job of the task, from the chunk store; None while it is read, or the savepoint with which
    it begins is loaded."""
    services = assignment.services
    log, digest = services.log, services.replica().digest_of(assignment.job_id)
    if digest is None:
        return None

    def read() -> Job:
        return stored_job(log.get_chunk(digest), assignment.job_id)

    job = assignment.background.poll("job", read)
    begins_with = None if job is None or job.upgrade is None else job.upgrade.savepoint
    if job is not None and begins_with and not _SAVEPOINT_LOADED.load()(assignment, job):
        return None
    return job


class PartOfAssignment(msgspec.Struct, frozen=True):
    """What follows from the `assignment` of a task, for the values that have one."""

    assignment: Assignment

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
        return self.assignment.services.clock


# --- how a peer joins a version, whatever its kind of task --------------------------------------


class Registration(msgspec.Struct):
    """The registration of the partitions of the task, by the log; once a job."""

    proposed: bool = False
    names: list[str] | None = None
    """The names of all partitions of an input, once they are known."""


def is_allocated(assignment: Assignment) -> bool:
    """Whether the newest replica has the peer on its task. If not, a Stop is on its way."""
    allocation = assignment.services.replica().run(assignment.job_id).allocation
    return assignment.peer in allocation.get(assignment.task, ())


def first_partition(
    assignment: Assignment, registration: Registration, count: int, proposes: bool
) -> int | None:
    """Number of the first of the partitions of a task that is so many; None until the log has it.

    Args:
        proposes: whether this peer has them numbered, for all peers of the task.
    """
    job, task = assignment.job_id, assignment.task
    registered = assignment.services.replica().partitions(job).get(task)
    if registered is not None:
        return registered.first
    if proposes and not registration.proposed:
        registration.proposed = True
        assignment.propose(RegisterPartitions(job=job, task=task, count=count))
    return None


def registered_alone(assignment: Assignment, registration: Registration) -> bool:
    """Make sure that a task is registered which is a single partition to the log."""
    return first_partition(assignment, registration, 1, proposes=True) is not None


def signal_ready(assignment: Assignment, version: AllocationVersion) -> Answer:
    """Propose that this peer can receive in this allocation version."""
    assignment.propose(signal(assignment.job_id, version, assignment.peer))
    return ADVANCED


def note_ready(assignment: Assignment, status: TaskStatus) -> None:
    """All peers of the job are ready: from now on the task works."""
    if status.ready_since_s is None:
        status.ready_since_s = assignment.clock.monotonic_s()


# --- what it runs -------------------------------------------------------------------------------


class FollowedOptions(msgspec.Struct):
    """The values that a task works with, and by what it found its part of a limit."""

    manifest: Job
    """The job as it was submitted."""
    options: Map[TaskName, Map[str, int]] = NOTHING
    declared: str = ""
    limited_by: JobRun | None = None
    """The run by which the peer's part of the task's limit was found."""

    def has(self, run: JobRun) -> bool:
        """Whether these are the values of a run."""
        return run.options is self.options and run.declared == self.declared

    def take(self, run: JobRun) -> Job:
        """The job with the values that were set in a run."""
        self.options, self.declared, self.limited_by = run.options, run.declared, None
        return with_options(self.manifest, run.options, bool(run.declared))


class Runtime(PartOfAssignment, frozen=True):
    """A task as a peer runs it."""

    program: Program
    delivery: DeliveryPolicy
    sizing: BatchSizing
    """How many segments a batch may have."""
    followed: FollowedOptions
    source: Source | None = None
    sink: Sink | None = None
    tables: TaskTables | None = None
    """What the task looks up; None: nothing."""
    combiners: Combiners = field(default_factory=dict)
    """Fold what is sent to children whose windows are combined."""
    registration: Registration = field(default_factory=Registration)
    seal_progress: LatestProgress = field(default_factory=LatestProgress)

    @property
    def metrics(self) -> TaskMetrics:
        """Where the task reports what it does."""
        return self.program.metrics


# --- one allocation version ---------------------------------------------------------------------


class Allocation(msgspec.Struct):
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
    edges: Edges | None = None
    """What has come to a processor."""
    event_time: EventTime | None = None
    """None where neither this task nor one downstream has windows that need it."""
    ready: bool = False
    """All peers of the job are ready for this version."""
    owners: Owners | None = None
    """The owners of partitions; known when the job is ready."""
    answering: Answering = NOBODY
    """Which trees are of requests; known when the job is ready."""
    exhaust_proposed: bool = False
    rests: bool = False
    """The job is paused and all sources above are at rest: nothing begins by itself."""
    rest_signalled: Position = NO_POSITION
    """The pause in which the peer has said that it is at rest."""
    flush_again_s: float = 0.0
    """In a job with loops, when outputs are asked again to make durable what they hold."""
    flush_wanted: bool = False
    """The plugin of an output is to make durable what it holds."""
    committing: OutputCommits | None = None
    """The commits of an exactly-once output."""
    keeper: StateKeeper | None = None
    """The state of a task that has one, once it is recovered."""
    lookups: Lookups | None = None
    """What is asked of another task for a batch."""
    alignment: Alignment | None = None
    """How an input waits for others in event time."""
    retries: list[tuple[Site, Numbers, int]] = field(default_factory=list)
    """Retries to ask for, with how many there may be, that the transport has not taken yet."""
    reasons: list[tuple[Site, Trees]] = field(default_factory=list)
    """Why segments are to be read again, for trees of requests; their owners hear of it first."""

    @property
    def state_ended(self) -> bool:
        """Whether the state of the task, if any, has fired for the last time and all of that has
        arrived."""
        return self.keeper is None or self.keeper.ended


# --- one batch ----------------------------------------------------------------------------------


class Pieces(msgspec.Struct):
    """What was read at once and is worked on piece by piece: because it has suspects, is too
    large, or has segments of several forms."""

    waiting: deque[Batch] = field(default_factory=deque)
    suspects: int = 0
    """The last so many pieces are one suspect each."""
    controls: list[tuple[PeerId, Control]] = field(default_factory=list)
    """Came with the batch, and go on with the last piece."""


class Work(BatchWork, kw_only=True):
    """The batch on its way through the phases, and what came with it."""

    timer: BatchTimer
    beside: list[Batch] = field(default_factory=list)
    """Segments of other forms that were read with the batch, before they are its pieces."""
    controls: list[tuple[PeerId, Control]] = field(default_factory=list)
    """Control items behind the batch, each with the peer that sent it."""
    partials: list[Partial] = field(default_factory=list)
    """States that came in place of segments, beside the batch."""
    pieces: Pieces = field(default_factory=Pieces)
    """What is still to come of the batch that was read."""
    others: deque[Batch] = field(default_factory=deque)
    """What came together with the batch from other tasks, where those are kept apart."""
    behind: list[tuple[PeerId, Control]] = field(default_factory=list)
    """Control items behind all of these."""
    alone: bool = False
    """Whether the batch is one suspect: no other task of the process may run user code."""
    kept: bool = False
    """Whether the batch has changed the state of the task, and waits until that is durable."""

    def take(self, batches: list[Batch]) -> None:
        """What was read: a batch of each form."""
        self.batch, self.beside = (batches[0], batches[1:]) if batches else (None, [])

    def forget_batch(self) -> None:
        """The batch is done, or of an old allocation version."""
        self.batch = self.leaves = self.groups = self.seen = self.routed = None
        self.returned, self.made, self.made_of, self.left = [], [], {}, None
        self.alone = self.kept = False

    def forget_all(self) -> None:
        """A new allocation version: control items and waiting pieces came on old channels."""
        self.forget_batch()
        self.controls, self.pieces = [], Pieces()
        self.behind, self.partials = [], []
        self.others.clear()


def new_work(clock: Clock) -> Work:
    """The work of a task that has no batch."""
    return Work(timer=BatchTimer(clock))


# --- how it gets on -----------------------------------------------------------------------------


class PlannedRestart(msgspec.Struct, frozen=True):
    """The peer of a failed task is to be replaced."""

    due_s: float
    afresh: bool
    """Restarts before this one do not count."""


class TaskStatus(msgspec.Struct):
    """How a task gets on. All times are monotonic, in seconds."""

    started: bool = False
    """Whether before_task_start was called, so that after_task_stop is due."""
    refused: bool = False
    """Whether start_task has said no."""
    failed: bool = False
    restart: PlannedRestart | None = None
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


class Sealing(msgspec.Struct):
    """The sealing of an output whose peer was elected to seal it."""

    wanted: bool = False
    attempts: Attempts = field(default_factory=Attempts)
