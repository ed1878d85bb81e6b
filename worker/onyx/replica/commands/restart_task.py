"""A virtual peer gives up a task because a lifecycle says `restart`, and a new one comes instead.

The entry only counts; leaving and joining have entries of their own. The count is in the replica
because the new peer has a new id, and whoever takes the task over may be in another process.
"""

from __future__ import annotations

from msgspec.structs import replace

from onyx.ids import Position
from onyx.replica.command import Command
from onyx.replica.spec import Job, Task
from onyx.replica.state import Replica


class RestartTask(Command, frozen=True):
    """Count a restart of a task."""

    job: Job
    task: Task
    afresh: bool = False
    """The peer had worked for long without a failure: what was before does not count."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that does not run, and for a task that it does not have."""
        if self.job not in replica.jobs or self.task not in replica.spec(self.job).by_name:
            return replica
        run = replica.run(self.job)
        count = 1 if self.afresh else run.restarts.get(self.task, 0) + 1
        restarts = run.restarts.set(self.task, count)
        return replica.with_run(self.job, replace(run, restarts=restarts))
