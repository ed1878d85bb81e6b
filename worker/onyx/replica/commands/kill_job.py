"""A job is stopped for ever: by a user, or by a task whose function failed.

A job that has completed stays completed: a late kill must not make two ends of one job.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from onyx.ids import Position
from onyx.replica import jobs
from onyx.replica.authors import BY_CHARACTERS_MAX
from onyx.replica.command import Command
from onyx.replica.spec import Job
from onyx.replica.state import Replica


class KillJob(Command, frozen=True):
    """End a job without completing it."""

    job: Job
    why: Annotated[str, Meta(max_length=BY_CHARACTERS_MAX)] = ""
    """Which task has failed, where and with what; empty if somebody asked for it. What the error
    says may hold what segments hold, and is not in the log."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that has ended. An id that nobody has submitted is taken by it."""
        if jobs.has_completed(replica, self.job) is not None:
            return replica
        return jobs.kill(replica, self.job)
