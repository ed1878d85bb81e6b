"""Source partitions have been read to the end and every tree of theirs is complete.

Without `partitions`, as in the original, the task is exhausted at once. Windowed tasks have one
partition a shard, at which the trees begin of what their triggers emit.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from onyx.ids import JobId, Position, TaskName
from onyx.replica.command import Command
from onyx.replica.jobs import exhaust
from onyx.replica.spec import Job, Task
from onyx.replica.state import Replica

PARTITIONS_MAX = 10_000
"""In one entry, whose size is limited; whoever has more to name writes several."""


class ExhaustInput(Command, frozen=True):
    """Some partitions of a source are exhausted, or all."""

    job: Job
    task: Task
    partitions: tuple[Annotated[int, Meta(ge=0, lt=65_535)], ...] | None = None
    """Numbers within the job; None for all partitions of the task."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that does not run, and for a task that is no source of it."""
        job, task = self.job, self.task
        if job not in replica.jobs or task not in replica.spec(job).sources:
            return replica
        if self.partitions is not None:
            replica = _mark(replica, job, task, self.partitions)
            if not _all_marked(replica, job, task):
                return replica
        if task in replica.run(job).exhausted_inputs:
            return replica
        return exhaust(replica, job, task)


def _numbers(replica: Replica, job: JobId, task: TaskName) -> range:
    registered = replica.partitions(job).get(task)
    if registered is None:
        return range(0)
    return range(registered.first, registered.first + registered.count)


def _mark(replica: Replica, job: JobId, task: TaskName, partitions: tuple[int, ...]) -> Replica:
    mine = _numbers(replica, job, task)
    run = replica.run(job)
    known = run.exhausted_partitions
    news = {number: None for number in partitions if number in mine and number not in known}
    if not news:
        return replica
    return replica.with_run(job, replace(run, exhausted_partitions=known.update(news)))


def _all_marked(replica: Replica, job: JobId, task: TaskName) -> bool:
    numbers = _numbers(replica, job, task)
    marked = replica.run(job).exhausted_partitions
    return len(numbers) > 0 and all(number in marked for number in numbers)
