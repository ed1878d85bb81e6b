"""A job gives its peers to others and stays in the cluster, until it asks for peers again.

What it has done stays: partitions, frontiers (beside the log), exhausted inputs, sealed outputs. It
keeps its number in the order of submission. A job that has ended, or that nobody knows, cannot be
suspended; a repeat changes nothing. The inputs of a job that is resumed replay from their
frontiers. If it drains (`drain-job`), it completes its in-flight segments and reads nothing new.
"""

from __future__ import annotations

from msgspec.structs import replace

from onyx.ids import NO_POSITION, Position
from onyx.replica.command import Command
from onyx.replica.spec import Job
from onyx.replica.state import NOTHING, Replica


class SuspendJob(Command, frozen=True):
    """Take the peers of a job until it is resumed."""

    job: Job

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that does not run, or is suspended already."""
        if self.job not in replica.jobs or replica.run(self.job).suspended:
            return replica
        return replica.with_run(self.job, replace(replica.run(self.job), suspended=True))


class ResumeJob(Command, frozen=True):
    """Let a suspended job have peers again, and the inputs of a paused one read."""

    job: Job

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that is neither suspended nor paused."""
        run = replica.run(self.job)
        if not run.suspended and not run.is_paused:
            return replica
        run = replace(run, suspended=False, paused=NO_POSITION, rested=NOTHING)
        return replica.with_run(self.job, run)
