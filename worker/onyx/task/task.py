"""What one virtual peer's work on one task consists of: data, a mailbox, and nothing that decides.

Other threads only post messages. The phases (`start.py`, `rewire.py`, `work.py`) are functions over
this state; `machine.py` steps it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from onyx.flow.apply import Leaves
from onyx.flow.batch import U64, Batch
from onyx.flow.conditions import Conditions
from onyx.flow.group_checks import Refusals
from onyx.flow.grouping import Grouping, KeyGetter
from onyx.flow.routed import Routed
from onyx.ids import JobId, PeerId, TaskName
from onyx.ledger.pending import BackOff
from onyx.model.job import CatalogEntry, Job
from onyx.recorder import Slot
from onyx.replica.entry import Command
from onyx.task.acking.owners import Owners
from onyx.task.acking.sender import AckSender
from onyx.task.batch_timer import BatchTimer
from onyx.task.channels.end_of_input import EndOfInput
from onyx.task.channels.event_time import EventTime
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import Site, Wiring
from onyx.task.kept import Kept
from onyx.task.lifecycles import Event, Lifecycles
from onyx.task.messages import Message, Stop
from onyx.task.phases.table import Kind, Phase, successors
from onyx.task.services import Services
from onyx.task.sink.sink import Sink
from onyx.task.source.batch_timeout import Filling
from onyx.task.source.source import Source
from onyx.task.windowed.state import Windowing
from onyx.telemetry.interface import NULL_TASK, TaskMetrics
from onyx.transport.interface import Control, Inbox
from onyx.windows.compile import CompiledWindows
from onyx.windows.prepared import Prepared

if TYPE_CHECKING:
    from onyx.task.sink.exactly_once import Committing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Windowed:
    """What a task with windows has besides."""

    compiled: CompiledWindows
    group_key: KeyGetter | None
    """None: the state is not split."""
    unique_key: str | None
    """By which repeats are told that the source itself makes."""
    late_to: tuple[str, ...]
    """Children that get late segments."""
    fed_by: frozenset[str]
    """Inputs and windowed tasks above: when they have ended, this one ends."""
    functions: Mapping[str, Callable[..., Any]]
    """Those that triggers name."""


@dataclass(slots=True)
class Static:
    """What is fixed once the job is loaded and its functions are resolved."""

    job: Job
    entry: CatalogEntry
    lifecycles: Lifecycles
    event: Event
    fn: Callable[..., Any] | None = None
    params: list[Any] = field(default_factory=list)
    conditions: Conditions | None = None
    """About what is sent on."""
    own_conditions: Conditions | None = None
    """About the segments of a task that sends none of them on: exceptions only."""
    groupings: Mapping[str, Grouping] = field(default_factory=dict)
    """Of the children that group."""
    source: Source | None = None
    sink: Sink | None = None
    sends_to: tuple[str, ...] = ()
    """Children that get what the task makes, unlike those that get only what is late, or dead
    letters."""
    children: tuple[str, ...] = ()
    """All of them."""
    retries: bool = False
    """Whether a flow condition asks for retries."""
    windowed: Windowed | None = None

    @property
    def observed(self) -> bool:
        """Whether a function of the user's may look at the event. If not it is left alone: what
        it would keep alive is a whole batch, whose memory the next one can use."""
        return bool(self.lifecycles.hooks) or self.conditions is not None

    @property
    def tracked(self) -> bool:
        """Whether segments are accounted for by the ledger."""
        return self.job.guarantee != "at-most-once"


@dataclass(slots=True)
class Live:
    """What belongs to one allocation version."""

    wiring: Wiring
    outbox: Outbox
    acks: AckSender
    inbox: Inbox
    ends: EndOfInput
    refusals: Refusals
    """What children cannot be sent."""
    event_time: EventTime | None = None
    """None where neither this task nor one below has windows that need it."""
    ready: bool = False
    owners: Owners | None = None
    """Of partitions; known when the job is ready."""
    exhaust_proposed: bool = False
    flush_wanted: bool = False
    """What the plugin of an output holds is to be made durable."""
    committing: Committing | None = None
    """Of an output that writes exactly once."""
    windowing: Windowing | None = None
    """The state of a windowed task, once it is recovered."""
    retries: list[tuple[Site, U64, int]] = field(default_factory=list)
    """Retries to ask for, with how many there may be, that the transport has not taken yet."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The peer of a failed task is to be replaced."""

    due_s: float
    afresh: bool
    """Restarts before this one do not count."""


@dataclass(slots=True)
class Parts:
    """Of a batch that was taken apart."""

    waiting: deque[Batch] = field(default_factory=deque)
    suspects: int = 0
    """So many, at the end, are one suspect each."""
    controls: list[tuple[PeerId, Control]] = field(default_factory=list)
    """That came with it, and go on with the last part."""


@dataclass(slots=True)
class Course:
    """How a task gets on, for who looks at it from another thread."""

    step_since_s: float | None = None
    """Since when its thread is in its present step; None between two."""
    obstacle: str = ""
    """What was Unavailable when the present phase was tried last."""
    tell_waiting_s: float | None = None
    """When to log what the phase waits for, if it still does then."""
    superseded_s: float | None = None
    """Since when what it has begun is lost to it, until it is wired anew."""
    held_back_in: Phase | None = None
    """The phase in which it waits because another task is to be alone in user code."""
    batches: int = 0
    """How often it has come to the end of its loop."""


class Task:
    """Not thread-safe except `post`."""

    def __init__(
        self,
        services: Services,
        peer: PeerId,
        job: JobId,
        task: TaskName,
        kind: Kind,
        wake: Callable[[], None],
    ) -> None:
        self.services = services
        self.peer, self.job_id, self.name, self.kind = peer, job, task, kind
        self.wake = wake
        self.phase = Phase.LOAD_JOB
        self.successors = successors(kind)
        self.started = False
        """Whether before_task_start was called, so that after_task_stop is due."""
        self.failed = False
        self.restart: Restart | None = None
        """What a failed task waits for."""
        self.ready_since_s: float | None = None
        """When it first began to work; None before."""
        self.course = Course()
        self.batch: Batch | None = None
        self.leaves: Leaves | None = None
        self.groups: list[Any] | None = None
        """Of the batch, for windows."""
        self.prepared: Prepared | None = None
        """Of the leaves, for windows."""
        self.routed: Routed | None = None
        """The verdict on the batch."""
        self.controls: list[tuple[PeerId, Control]] = []
        self.parts = Parts()
        """Of the batch that was read, those that have not been worked on."""
        self.alone = False
        """Whether the batch is one suspect, which nobody else of the process may disturb."""
        self.user_phases = frozenset({Phase.LOAD_JOB})
        """In which user code runs; more are known when the job is loaded, and the task built."""
        self.slot: Slot = services.recorder.slot(job, task)
        self.kept = Kept()
        self.seal_wanted = False
        self.seal_attempts = 0
        self.next_save_s = 0.0
        self.retry_after_s = 0.0
        self.partition_names: list[str] | None = None
        self.registering = False
        self.metrics: TaskMetrics = NULL_TASK
        """Its own as soon as the job is loaded."""
        self.timer = BatchTimer(services.clock)
        self.filling = Filling(services.clock, 0.0)
        """With the time-out of the task as soon as the job is loaded."""
        self._static: Static | None = None
        self._live: Live | None = None
        self.mail: deque[Message] = deque()
        """Bounded by what it tells of: an entry of the log each, trees in flight, few questions."""
        self.futures: dict[str, Future[Any]] = {}
        self.stop: Stop | None = None
        self.wanted = True
        """False as soon as a Stop was posted, though the task may not have looked yet."""

    def forget_batch(self) -> None:
        """Nothing of the batch is needed any more."""
        self.batch = self.leaves = self.groups = self.prepared = self.routed = None
        self.alone = False

    @property
    def back_off(self) -> BackOff:
        """Before a retry that a flow condition asks for."""
        ledger = self.services.settings.ledger
        return BackOff(ledger.retry_delay_s, ledger.retry_delay_max_s)

    @property
    def static(self) -> Static:
        assert self._static is not None, f"{self.phase} needs the job"
        return self._static

    @static.setter
    def static(self, value: Static) -> None:
        self._static = value

    @property
    def live(self) -> Live:
        assert self._live is not None, f"{self.phase} needs a wiring"
        return self._live

    @live.setter
    def live(self, value: Live) -> None:
        if self._live is not None:
            self._live.inbox.close()
        self._live = value

    @property
    def cooperative(self) -> bool:
        """Whether its steps never block: known once the plugin is built."""
        return bool(self.static.event["cooperative"])

    @property
    def loaded(self) -> bool:
        return self._static is not None

    @property
    def wired(self) -> bool:
        """Whether the task has taken a wiring (and so has built its plugin)."""
        return self._live is not None

    def post(self, message: Message) -> None:
        """Tell the task something; from any thread."""
        if isinstance(message, Stop):
            self.wanted = False
        self.mail.append(message)
        self.wake()

    def poll(self, name: str, start: Callable[[], Future[T]]) -> T | None:
        """The result of background work, started once; None while it runs."""
        future = self.futures.get(name)
        if future is None:
            future = start()
            future.add_done_callback(lambda _: self.wake())
            self.futures[name] = future
        if not future.done():
            return None
        del self.futures[name]
        result: T = future.result()
        return result

    def propose(self, fn: str, **args: Any) -> None:
        """Write a command to the log on behalf of this peer."""
        self.services.propose(self.peer, Command(fn, args))
