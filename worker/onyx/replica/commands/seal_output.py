"""An output task is sealed: all that it wrote is final. With the last one the job is complete."""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from onyx.ids import Position, TaskName
from onyx.replica import jobs
from onyx.replica.command import Arguments, Diff, Job, Task, no_reactions
from onyx.replica.state import Replica

NAME = "seal-output"


class Args(Arguments, frozen=True):
    job: Job
    task: Task


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    outputs = replica.output_tasks.get(args.job, ())
    if args.job not in replica.jobs or args.task not in outputs:
        return replica
    sealed: Map[TaskName, None] = replica.sealed_outputs.get(args.job, Map())
    sealed = sealed.set(args.task, None)
    if all(task in sealed for task in outputs):
        return jobs.complete(replica, args.job)
    return replace(replica, sealed_outputs=replica.sealed_outputs.set(args.job, sealed))


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    completed = args.job in new.completed_jobs and args.job not in old.completed_jobs
    return {"job-completed?": completed, "job": args.job}


reactions = no_reactions
