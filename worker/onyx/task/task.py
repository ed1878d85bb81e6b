"""One virtual peer's work on one task: its parts and a mailbox, and nothing that decides.

Other threads only post messages. `machine.py` steps the task through its phases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from onyx.ids import JobId, PeerId, TaskName
from onyx.task.background import Background
from onyx.task.batch_timer import BatchTimer
from onyx.task.messages import Message, Stop
from onyx.task.parts import (
    Allocation,
    Assignment,
    Program,
    Sealing,
    Status,
    Work,
)
from onyx.task.phases.table import Kind, Phase, successors
from onyx.task.services import Services
from onyx.task.user_code import UserCode


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
        background = Background(services.background, wake)
        self.assignment = Assignment(
            services, peer, job, task, kind, wake, lambda: self.wanted, background
        )
        self.phase = Phase.LOAD_JOB
        self.successors = successors(kind)
        self.work = Work(BatchTimer(services.clock))
        self.status = Status()
        self.sealing = Sealing()
        self.user_code = UserCode(services.recorder.slot(job, task))
        self._program: Program | None = None
        self._allocation: Allocation | None = None
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
    def program(self) -> Program:
        """What it runs; `loaded` says whether that is known."""
        assert self._program is not None, f"{self.phase} needs the job"
        return self._program

    @program.setter
    def program(self, value: Program) -> None:
        self._program = value

    @property
    def allocation(self) -> Allocation:
        """What belongs to its allocation version; `wired` says whether it has one."""
        assert self._allocation is not None, f"{self.phase} needs a wiring"
        return self._allocation

    @allocation.setter
    def allocation(self, value: Allocation) -> None:
        if self._allocation is not None:
            self._allocation.inbox.close()
        self._allocation = value

    @property
    def cooperative(self) -> bool:
        """Whether its steps never block: known once the plugin is built."""
        return bool(self.program.event["cooperative"])

    @property
    def loaded(self) -> bool:
        """Whether the job is loaded."""
        return self._program is not None

    @property
    def wired(self) -> bool:
        """Whether the task has taken a wiring (and so has built its plugin)."""
        return self._allocation is not None

    def post(self, message: Message) -> None:
        """Leave a message for the task's next step; from any thread."""
        if isinstance(message, Stop):
            self.wanted = False
        self.mail.append(message)
        self.assignment.wake()
