"""An output task is sealed: all that it wrote is final. With the last one the job is complete."""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from onyx.ids import Position, TaskName
from onyx.replica import jobs
from onyx.replica.command import Command
from onyx.replica.spec import Job, Task
from onyx.replica.state import Replica


class SealOutput(Command, frozen=True):
    """An output is final."""

    job: Job
    task: Task

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that does not run, and for a task that is no output of it."""
        if self.job not in replica.jobs or self.task not in replica.specs[self.job].outputs:
            return replica
        sealed: Map[TaskName, None] = replica.sealed_outputs.get(self.job, Map())
        sealed = sealed.set(self.task, None)
        if all(task in sealed for task in replica.specs[self.job].outputs):
            return jobs.complete(replica, self.job)
        return replace(replica, sealed_outputs=replica.sealed_outputs.set(self.job, sealed))
