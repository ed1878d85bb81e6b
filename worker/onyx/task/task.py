"""One virtual peer's work on one task: its parts and a mailbox, and nothing that decides.

Other threads only post messages. `machine.py` steps the task through its phases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from onyx.ids import JobId, PeerId, TaskName
from onyx.program.phases import Phase
from onyx.task.background import Background
from onyx.task.batch_timer import BatchTimer
from onyx.task.messages import Message, Stop
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.assignment import Assignment, LatestRun
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.status import Sealing, Status
from onyx.task.parts.work import Work
from onyx.task.services import Services
from onyx.task.table import Kind, successors
from onyx.task.user_code import UserCode


class Task:
    """Not thread-safe except `post`."""

    runtime: Runtime
    """What it runs; there when `loaded`. Plain attributes: each phase of each batch asks for
    them."""
    allocation: Allocation
    """What belongs to its allocation version; there when `wired`. Set by `allocate`."""

    def __init__(
        self,
        services: Services,
        peer: PeerId,
        job: JobId,
        task: TaskName,
        kind: Kind,
        wake: Callable[[], None],
    ) -> None:
        background = Background(services.background, wake)
        self.assignment = Assignment(
            services,
            peer,
            job,
            task,
            kind,
            wake,
            lambda: self.wanted,
            background,
            LatestRun(services.replica, job),
        )
        self.phase = Phase.LOAD_JOB
        self.successors = successors(kind)
        self.work = Work(timer=BatchTimer(services.clock))
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

    def allocate(self, allocation: Allocation) -> None:
        """Take this allocation in the place of the last one, whose inbox is closed."""
        if self.wired:
            self.allocation.inbox.close()
        self.allocation = allocation

    @property
    def cooperative(self) -> bool:
        """Whether its steps never block: known once the plugin is built."""
        return bool(self.runtime.program.event["cooperative"])

    @property
    def loaded(self) -> bool:
        """Whether the job is loaded."""
        return hasattr(self, "runtime")

    @property
    def wired(self) -> bool:
        """Whether the task has taken a wiring (and so has built its plugin)."""
        return hasattr(self, "allocation")

    def post(self, message: Message) -> None:
        """Leave a message for the task's next step; from any thread."""
        if isinstance(message, Stop):
            self.wanted = False
        self.mail.append(message)
        self.assignment.wake()
