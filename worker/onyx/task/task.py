"""One virtual peer's work on one task, whatever kind of task that is: an assignment, a phase, a
mailbox, and nothing that decides.

Other threads only post messages, which are read at the start of a step. `machine.py` steps the task
through the phases of its kind, and asks its `Behaviour` where kinds differ: a `BatchTask` works on
batches, a `DriverTask` drives the query of a job on Spark. Rejected: one kind of task with a part
for each, of which some are false.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx.base.runs import Numbers
from onyx.ids import AllocationVersion, JobId, PeerId, TaskName
from onyx.ledger.returns import Trees
from onyx.model.job import Job
from onyx.program.failure import Failure
from onyx.program.lifecycles import Verdict
from onyx.program.phases import Phase
from onyx.task.measured import MeasuredPart
from onyx.task.parts import Allocation, Runtime, Sealing, TaskStatus, assign, new_work
from onyx.task.services import Services
from onyx.task.table import LOOP_STARTS, Answer, TaskKind, successors
from onyx.task.user_code import UserCode
from onyx.telemetry.interface import TaskMetrics
from onyx.transport.interface import LookUp, LookUpAnswer
from onyx.transport.state_queries import StateAnswer, StateQuery

# --- messages of other threads ------------------------------------------------------------------


class Rewire(msgspec.Struct, frozen=True):
    """The job's allocation has a new version."""

    version: AllocationVersion


class Ready(msgspec.Struct, frozen=True):
    """All peers of the job are ready for this version."""

    version: AllocationVersion


class Seal(msgspec.Struct, frozen=True):
    """This peer was elected to seal the output task."""


class Stop(msgspec.Struct, frozen=True):
    """Leave the task."""

    reason: str


class CompletedTrees(msgspec.Struct, frozen=True):
    """Trees that this peer has begun, as an input or with what its state emits, are complete."""

    version: AllocationVersion
    roots: Numbers


class RetriedTrees(msgspec.Struct, frozen=True):
    """Trees that this peer has begun are to be begun again: a function or a flow condition asks for
    that."""

    version: AllocationVersion
    roots: Numbers
    retries_max: int
    """How often each of them may be begun again."""


def trees_message(
    version: AllocationVersion, roots: Numbers, retries_max: int
) -> CompletedTrees | RetriedTrees:
    """What the transport hands over (`transport.interface.Handlers.on_completions`)."""
    if retries_max:
        return RetriedTrees(version, roots, retries_max)
    return CompletedTrees(version, roots)


class ReturnedValues(msgspec.Struct, frozen=True):
    """What functions give back for trees of this input peer, before their completions."""

    version: AllocationVersion
    trees: Trees


class StateQuestion(msgspec.Struct, frozen=True):
    """A client asks for the state of a window and waits for the answer."""

    query: StateQuery
    answer: Future[StateAnswer]


Message = (
    Rewire
    | Ready
    | Seal
    | Stop
    | CompletedTrees
    | RetriedTrees
    | ReturnedValues
    | StateQuestion
    | LookUp
    | LookUpAnswer
)


# --- tasks --------------------------------------------------------------------------------------


class Behaviour(msgspec.Struct, frozen=True):
    """What the machine asks about a task, by its kind. Functions get the task."""

    run: Mapping[Phase, Callable[[Any], Answer]]
    """The phases of its table."""
    receive: Callable[[Any, Message], None]
    """Take a message that is not Stop."""
    more_waits: Callable[[Any], bool]
    """Whether another whole batch waits for it."""
    verdict: Callable[[Any, Failure], Verdict]
    """What to do about a failure."""
    closers: Callable[[Any, str], list[Callable[[], object]]]
    """What is to be done when it leaves, for this reason."""


class Task:
    """Not thread-safe except `post`."""

    def __init__(
        self,
        behaviour: Behaviour,
        services: Services,
        peer: PeerId,
        job: JobId,
        task: TaskName,
        kind: TaskKind,
        wake: Callable[[], None],
    ) -> None:
        self.assignment = assign(services, peer, job, task, kind, wake, lambda: self.wanted)
        self.behaviour = behaviour
        self.run = behaviour.run
        """A plain attribute: every step asks for it."""
        self.phase = Phase.LOAD_JOB
        self.successors = successors(kind)
        self.job: Job | None = None
        """The job, once it is loaded."""
        self.metrics: TaskMetrics | None = None
        """Where it reports what it does, once its job is loaded."""
        self.work = new_work(services.clock)
        """The batch that it works on; a task without batches never has one."""
        self.status = TaskStatus()
        self.sealing = Sealing()
        self.user_code = UserCode(
            services.recorder.slot(job, task, lambda: services.replica().partitions(job))
        )
        self.mail: deque[Message] = deque()
        """Bounded by what it is about: an entry of the log each, trees in flight, few queries."""
        self.stop: Stop | None = None
        self.wanted = True
        """False as soon as a Stop was posted, though the task may not have read it yet."""

    @property
    def peer(self) -> PeerId:
        """The virtual peer that works on the task."""
        return self.assignment.peer

    @property
    def job_id(self) -> JobId:
        """The job that the task belongs to."""
        return self.assignment.job_id

    @property
    def name(self) -> TaskName:
        """The task's name in its job."""
        return self.assignment.task

    @property
    def kind(self) -> TaskKind:
        """Whether it reads, applies a function only, or writes."""
        return self.assignment.kind

    @property
    def query(self) -> str:
        """What the query of Spark does that it drives, in words; empty while it drives none."""
        return ""

    @property
    def parts(self) -> Sequence[MeasuredPart]:
        """What is measured of it; from any thread."""
        return (MeasuredPart(self.name, None if self.metrics is None else self.metrics.tally),)

    @property
    def version(self) -> AllocationVersion | None:
        """The allocation version whose wiring it has taken; None before the first."""
        raise NotImplementedError

    @property
    def cooperative(self) -> bool:
        """Whether its steps never block: known once it has taken a wiring."""
        return True

    @property
    def woken(self) -> bool:
        """Whether it is woken for what it waits for, but for what may come some hundredths of a
        second late. If not, it looks often."""
        return False

    def post(self, message: Message) -> None:
        """Leave a message for the task's next step; from any thread."""
        if isinstance(message, Stop):
            self.wanted = False
        self.mail.append(message)
        self.assignment.wake()


_HALF_APPLIED = (Phase.AFTER_APPLY_FN, Phase.ROUTE, Phase.ASSIGN_WINDOWS)


class BatchTask(Task):
    """Plain attributes: each phase of each batch asks for them."""

    runtime: Runtime
    """What it runs; there when `loaded`."""
    allocation: Allocation
    """What belongs to its allocation version; there when `wired`. Set by `allocate`."""

    def load(self, runtime: Runtime) -> None:
        """Take what the task runs, as far as it is known."""
        self.runtime = runtime
        self.job, self.metrics = runtime.program.job, runtime.metrics

    def allocate(self, allocation: Allocation) -> None:
        """Take this allocation in the place of the last one, whose inbox is closed."""
        if self.wired:
            self.allocation.inbox.close()
        self.allocation = allocation

    @property
    def parts(self) -> Sequence[MeasuredPart]:
        """What is measured of it, with where it reads."""
        (part,) = super().parts
        return (replace(part, source=self.runtime.source if self.loaded else None),)

    @property
    def half_applied(self) -> bool:
        """Whether a function with state or a processor has worked on the batch, and the changes
        have still to be accounted for."""
        return self.phase in _HALF_APPLIED

    @property
    def cooperative(self) -> bool:
        """Whether its steps never block: known once the plugin is built."""
        return bool(self.runtime.program.event["cooperative"])

    @property
    def woken(self) -> bool:
        """Between two batches: by what is sent to it, and by a source that says when something has
        come. A state, acks that gather, and a plugin that makes something durable by itself have to
        be asked."""
        if not self.wired or self.phase not in LOOP_STARTS or self.status.obstacle:
            return False
        its, source, sink = self.allocation, self.runtime.source, self.runtime.sink
        if its.keeper is not None or its.filling.timeout_s or its.acks.gathers or len(its.outbox):
            return False
        return (source is None or source.woken) and (sink is None or not sink.waits)

    @property
    def loaded(self) -> bool:
        """Whether the job is loaded."""
        return hasattr(self, "runtime")

    @property
    def wired(self) -> bool:
        """Whether the task has taken a wiring (and so has built its plugin)."""
        return hasattr(self, "allocation")

    @property
    def version(self) -> AllocationVersion | None:
        """The allocation version whose wiring it has taken; None before the first."""
        return self.allocation.wiring.version if self.wired else None
