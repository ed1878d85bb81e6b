"""One virtual peer's work on one task, whatever kind of task that is: an assignment, a phase, a
mailbox, and nothing that decides.

Other threads only post messages. `machine.py` steps the task through the phases of its kind, and
asks its `Behaviour` where kinds differ: a `BatchTask` works on batches, a `DriverTask` drives the
query of a job on Spark. Rejected: one kind of task with a part for each, of which some are false.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from onyx.ids import AllocationVersion, JobId, PeerId, TaskName
from onyx.model.job import Job
from onyx.program.phases import Phase
from onyx.task.behaviour import Behaviour
from onyx.task.messages import Message, Stop
from onyx.task.parts.assignment import assign
from onyx.task.parts.status import Sealing, Status
from onyx.task.parts.work import new_work
from onyx.task.services import Services
from onyx.task.table import Kind, successors
from onyx.task.user_code import UserCode
from onyx.telemetry.interface import TaskMetrics


class Task:
    """Not thread-safe except `post`."""

    def __init__(
        self,
        behaviour: Behaviour,
        services: Services,
        peer: PeerId,
        job: JobId,
        task: TaskName,
        kind: Kind,
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
        self.status = Status()
        self.sealing = Sealing()
        self.user_code = UserCode(services.recorder.slot(job, task))
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
    def kind(self) -> Kind:
        """Whether it reads, applies a function only, or writes."""
        return self.assignment.kind

    @property
    def query(self) -> str:
        """What the query of Spark does that it drives, in words; empty while it drives none."""
        return ""

    @property
    def version(self) -> AllocationVersion | None:
        """The allocation version whose wiring it has taken; None before the first."""
        raise NotImplementedError

    @property
    def cooperative(self) -> bool:
        """Whether its steps never block: known once it has taken a wiring."""
        return True

    def post(self, message: Message) -> None:
        """Leave a message for the task's next step; from any thread."""
        if isinstance(message, Stop):
            self.wanted = False
        self.mail.append(message)
        self.assignment.wake()
