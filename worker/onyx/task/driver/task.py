"""The task of a driver: no batches, no channels, and in the log the only task of its job."""

from __future__ import annotations

import msgspec
from msgspec import field

from onyx.ids import AllocationVersion
from onyx.spark.driver.driver import Driver
from onyx.task.parts import PartOfAssignment, Registration
from onyx.task.task import Task
from onyx.telemetry.interface import TaskMetrics


class Membership(msgspec.Struct):
    """Its part in one allocation version."""

    version: AllocationVersion
    ready: bool = False
    """All peers of the job are ready for this version."""
    exhaust_proposed: bool = False


class DriverRuntime(PartOfAssignment, frozen=True):
    """What a driver has once its job is loaded."""

    driver: Driver
    metrics: TaskMetrics
    registration: Registration = field(default_factory=Registration)


class DriverTask(Task):
    """Not thread-safe except `post`."""

    runtime: DriverRuntime
    """There when its job is loaded."""
    membership: Membership | None = None
    """There when it has joined an allocation version."""

    @property
    def query(self) -> str:
        """What its query does."""
        return "" if self.job is None else self.runtime.driver.where

    @property
    def version(self) -> AllocationVersion | None:
        """The allocation version whose wiring it has taken; None before the first."""
        return None if self.membership is None else self.membership.version

    @property
    def member(self) -> Membership:
        """Its membership, in a phase behind the wiring."""
        assert self.membership is not None, "the phase before"
        return self.membership
