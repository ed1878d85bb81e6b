"""seal-output: an output task is sealed; when all are, the job has completed."""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from onyx.ids import GroupId, JobId, Position, TaskName
from onyx.replica import jobs
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "seal-output"
RESCHEDULES = True


class Args(Arguments, frozen=True):
    job: JobId
    task: TaskName


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.job not in replica.jobs:
        return replica
    sealed = replica.sealed_outputs.get(args.job, Map()).set(args.task, None)
    replica = replace(replica, sealed_outputs=replica.sealed_outputs.set(args.job, sealed))
    if not all(task in sealed for task in replica.output_tasks.get(args.job, ())):
        return replica
    ended = jobs.end(replica, args.job)
    return replace(ended, completed_jobs=(*ended.completed_jobs, args.job))


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    completed = args.job in new.completed_jobs and args.job not in old.completed_jobs
    return {"job": args.job, "job-completed?": completed}


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    return ()
