"""A job gives its peers to others and stays in the cluster.

What it has done stays: partitions, frontiers (beside the log), exhausted inputs, sealed outputs. It
keeps its number in the order of submission. A job that has ended, or that nobody knows, cannot be
suspended; a repeat changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import Position
from onyx.replica.command import Command
from onyx.replica.spec import Job
from onyx.replica.state import Replica


class SuspendJob(Command, frozen=True):
    """Take the peers of a job until it is resumed."""

    job: Job

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that does not run, or is suspended already."""
        if self.job not in replica.jobs or replica.run(self.job).suspended:
            return replica
        return replica.with_run(self.job, replace(replica.run(self.job), suspended=True))
