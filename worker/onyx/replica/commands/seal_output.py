"""An output task is sealed: all that it wrote is final. With the last one the job is complete,
unless tasks in the middle of it have still to give what others wait for."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from onyx.ids import Position
from onyx.replica import jobs
from onyx.replica.command import Command
from onyx.replica.spec import Job, Task
from onyx.replica.state import Replica

PARTS_MAX = 2_000
"""In one entry, whose size is limited; of an output with more writers it is not said which of
their parts were the last ones."""
Name = Annotated[str, Meta(max_length=255)]


class SealOutput(Command, frozen=True):
    """An output is final."""

    job: Job
    task: Task
    parts: Annotated[tuple[Name, ...], Meta(max_length=PARTS_MAX)] = ()
    """The last part of each of its writers, if its parts can be followed."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that does not run, and for a task that is no output of it."""
        if self.job not in replica.jobs or self.task not in replica.spec(self.job).outputs:
            return replica
        if self.parts:
            record = replica.records[self.job]
            record = replace(record, parts=record.parts.set(self.task, self.parts))
            replica = replace(replica, records=replica.records.set(self.job, record))
        run = replica.run(self.job)
        sealed = run.sealed_outputs.set(self.task, None)
        spec = replica.spec(self.job)
        goes_on = any(task not in run.exhausted_inputs for task in spec.in_the_middle)
        if not goes_on and all(task in sealed for task in spec.outputs):
            return jobs.complete(replica, self.job)
        return replica.with_run(self.job, replace(run, sealed_outputs=sealed))
