"""The program of a task, and what a peer needs to run it."""

from __future__ import annotations

from dataclasses import dataclass, field

from onyx.ids import JobId, TaskName
from onyx.program.program import Program
from onyx.seams import Clock
from onyx.task.batch_sizing import BatchSizing
from onyx.task.delivery.policy import Delivery
from onyx.task.parts.assignment import Assignment, Registration
from onyx.task.seal_progress import LatestProgress
from onyx.task.services import Services
from onyx.task.sink.sink import Sink
from onyx.task.source.source import Source
from onyx.telemetry.interface import TaskMetrics


@dataclass(frozen=True, slots=True)
class Runtime:
    """A task as a peer runs it."""

    assignment: Assignment
    program: Program
    delivery: Delivery
    sizing: BatchSizing
    """How many segments a batch may have."""
    source: Source | None = None
    sink: Sink | None = None
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
        return self.assignment.services.clock

    @property
    def metrics(self) -> TaskMetrics:
        """Where the task reports what it does."""
        return self.program.metrics
