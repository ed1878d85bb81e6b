"""complete-job: a job has ended well (written by a coordinator of barriers, later)."""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, JobId, Position
from onyx.replica import jobs
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "complete-job"
RESCHEDULES = True


class Args(Arguments, frozen=True):
    job_id: JobId


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.job_id not in replica.jobs:
        return replica
    ended = jobs.end(replica, args.job_id)
    return replace(ended, completed_jobs=(*ended.completed_jobs, args.job_id))


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return {"job": args.job_id} if new.completed_jobs != old.completed_jobs else None


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    return ()
