"""Who works on which task, and in which process."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from onyx.base.seams import Clock
from onyx.ids import JobId, PeerId, TaskName
from onyx.ledger.retry_delay import RetryDelay
from onyx.replica.command import Command
from onyx.replica.state import JobRun, Replica
from onyx.task.background import Background
from onyx.task.services import Services
from onyx.task.table import Kind


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


class Assignment(msgspec.Struct, frozen=True):
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


def assign(
    services: Services,
    peer: PeerId,
    job_id: JobId,
    task: TaskName,
    kind: Kind,
    wake: Callable[[], None],
    wanted: Callable[[], bool],
) -> Assignment:
    """An assignment that a peer has got."""
    background, latest = Background(services.background, wake), LatestRun(services.replica, job_id)
    return Assignment(services, peer, job_id, task, kind, wake, wanted, background, latest)


class Assigned(msgspec.Struct, frozen=True):
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


class Registration(msgspec.Struct):
    """The registration of the partitions of the task, by the log; once a job."""

    proposed: bool = False
    names: list[str] | None = None
    """The names of all partitions of an input, once they are known."""
