"""A job gives its peers to others and stays in the cluster.

What it has done stays: partitions, frontiers (beside the log), exhausted inputs, sealed outputs. It
keeps its place in the order of submission. A job that has ended, or that nobody knows, cannot be
suspended; a repeat changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import Position
from onyx.replica.command import Arguments, Diff, Job, no_reactions
from onyx.replica.state import Replica

NAME = "suspend-job"


class Args(Arguments, frozen=True):
    job: Job


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.job not in replica.jobs or args.job in replica.suspended_jobs:
        return replica
    return replace(replica, suspended_jobs=replica.suspended_jobs.set(args.job, None))


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    suspended = args.job in new.suspended_jobs and args.job not in old.suspended_jobs
    return {"job": args.job} if suspended else None


reactions = no_reactions
