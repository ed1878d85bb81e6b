"""A job is stopped for ever: by a user, or by a task whose function failed.

A job that has completed stays completed: a late kill must not make two ends of one job.
"""

from __future__ import annotations

from onyx.ids import Position
from onyx.replica import jobs
from onyx.replica.command import Arguments, Diff, Job, no_reactions
from onyx.replica.state import Replica

NAME = "kill-job"


class Args(Arguments, frozen=True):
    job: Job


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.job in replica.killed_jobs or args.job in replica.completed_jobs:
        return replica
    return jobs.kill(replica, args.job)


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    killed = [job for job in new.killed_jobs if job not in old.killed_jobs]
    return {"killed": killed} if killed else None


reactions = no_reactions
