"""A job is declared complete at once, whatever its tasks have done (by whoever coordinates it)."""

from __future__ import annotations

from onyx.ids import Position
from onyx.replica import jobs
from onyx.replica.command import Arguments, Diff, Job, no_reactions
from onyx.replica.state import Replica

NAME = "complete-job"


class Args(Arguments, frozen=True):
    job_id: Job


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    return jobs.complete(replica, args.job_id) if args.job_id in replica.jobs else replica


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    completed = args.job_id in new.completed_jobs and args.job_id not in old.completed_jobs
    return {"job": args.job_id} if completed else None


reactions = no_reactions
