"""Source partitions have been read to the end and every tree of theirs is complete.

Without `partitions`, as in the original, the task is exhausted at once. Windowed tasks have one
partition a shard, at which the trees begin of what their triggers emit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from immutables import Map
from msgspec import Meta

from onyx.ids import JobId, Position, TaskName
from onyx.replica.command import Command
from onyx.replica.jobs import end_without_outputs
from onyx.replica.spec import Job, Task
from onyx.replica.state import Replica

_NONE: Map[int, None] = Map()


class ExhaustInput(Command, frozen=True):
    """Some partitions of a source are exhausted, or all."""

    job: Job
    task: Task
    partitions: tuple[Annotated[int, Meta(ge=0, lt=65_535)], ...] | None = None
    """Numbers within the job; None for all partitions of the task."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that does not run, and for a task that is no source of it."""
        job, task = self.job, self.task
        if job not in replica.jobs or task not in replica.specs[job].sources:
            return replica
        if self.partitions is not None:
            replica = _mark(replica, job, task, self.partitions)
            if not _all_marked(replica, job, task):
                return replica
        tasks: Map[TaskName, None] = replica.exhausted_inputs.get(job, Map())
        if task in tasks:
            return replica
        exhausted = replica.exhausted_inputs.set(job, tasks.set(task, None))
        return end_without_outputs(replace(replica, exhausted_inputs=exhausted), job)


def _numbers(replica: Replica, job: JobId, task: TaskName) -> range:
    registered = replica.partitions.get(job, Map()).get(task)
    if registered is None:
        return range(0)
    return range(registered.first, registered.first + registered.count)


def _mark(replica: Replica, job: JobId, task: TaskName, partitions: tuple[int, ...]) -> Replica:
    mine = _numbers(replica, job, task)
    known = replica.exhausted_partitions.get(job, _NONE)
    news = {number: None for number in partitions if number in mine and number not in known}
    if not news:
        return replica
    marked = replica.exhausted_partitions.set(job, known.update(news))
    return replace(replica, exhausted_partitions=marked)


def _all_marked(replica: Replica, job: JobId, task: TaskName) -> bool:
    numbers = _numbers(replica, job, task)
    marked = replica.exhausted_partitions.get(job, _NONE)
    return len(numbers) > 0 and all(number in marked for number in numbers)
