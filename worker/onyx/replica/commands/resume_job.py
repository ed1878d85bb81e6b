"""A suspended job asks for peers again; its inputs replay from their frontiers.

If it was told to drain meanwhile, it completes what was pending and no more.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import Position
from onyx.replica.command import Arguments, Diff, Job, no_reactions
from onyx.replica.state import Replica

NAME = "resume-job"


class Args(Arguments, frozen=True):
    job: Job


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.job not in replica.suspended_jobs:
        return replica
    return replace(replica, suspended_jobs=replica.suspended_jobs.delete(args.job))


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    resumed = args.job in old.suspended_jobs and args.job in new.jobs
    return {"job": args.job} if resumed and args.job not in new.suspended_jobs else None


reactions = no_reactions
