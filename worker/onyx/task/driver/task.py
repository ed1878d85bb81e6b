"""The task of a driver: no batches, no channels, and in the log the only task of its job."""

from __future__ import annotations

from dataclasses import dataclass, field

from onyx.ids import AllocationVersion, JobId, TaskName
from onyx.seams import Clock
from onyx.spark.driver.driver import Driver
from onyx.task.parts.assignment import Assignment, Registration
from onyx.task.services import Services
from onyx.task.task import Task
from onyx.telemetry.interface import TaskMetrics


@dataclass(slots=True)
class Membership:
    """Its part in one allocation version."""

    version: AllocationVersion
    ready: bool = False
    """All peers of the job are ready for this version."""
    exhaust_proposed: bool = False


@dataclass(frozen=True, slots=True)
class DriverRuntime:
    """What a driver has once its job is loaded."""

    assignment: Assignment
    driver: Driver
    metrics: TaskMetrics
    registration: Registration = field(default_factory=Registration)

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
        return self.assignment.clock


class DriverTask(Task):
    """Not thread-safe except `post`."""

    runtime: DriverRuntime
    """There when its job is loaded."""
    membership: Membership | None = None
    """There when it has joined an allocation version."""

    @property
    def version(self) -> AllocationVersion | None:
        """The allocation version whose wiring it has taken; None before the first."""
        return None if self.membership is None else self.membership.version

    @property
    def member(self) -> Membership:
        """Its membership, in a phase behind the wiring."""
        assert self.membership is not None, "the phase before"
        return self.membership
