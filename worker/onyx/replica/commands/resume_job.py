"""A suspended job asks for peers again; its inputs replay from their frontiers.

If it drains (`drain-job`), it completes its in-flight segments and reads nothing new.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import Position
from onyx.replica.command import Command
from onyx.replica.spec import Job
from onyx.replica.state import Replica


class ResumeJob(Command, frozen=True):
    """Let a suspended job have peers again."""

    job: Job

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that is not suspended."""
        if self.job not in replica.suspended_jobs:
            return replica
        return replace(replica, suspended_jobs=replica.suspended_jobs.delete(self.job))
