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
        if not replica.run(self.job).suspended:
            return replica
        return replica.with_run(self.job, replace(replica.run(self.job), suspended=False))
