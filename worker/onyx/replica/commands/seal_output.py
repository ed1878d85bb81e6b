"""An output task is sealed: all that it wrote is final. With the last one the job is complete,
unless tasks in the middle of it have still to give what others wait for."""

from __future__ import annotations

from msgspec.structs import replace

from onyx.ids import Position
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
        if self.job not in replica.jobs or self.task not in replica.spec(self.job).outputs:
            return replica
        run = replica.run(self.job)
        sealed = run.sealed_outputs.set(self.task, None)
        spec = replica.spec(self.job)
        goes_on = any(task not in run.exhausted_inputs for task in spec.in_the_middle)
        if not goes_on and all(task in sealed for task in spec.outputs):
            return jobs.complete(replica, self.job)
        return replica.with_run(self.job, replace(run, sealed_outputs=sealed))
