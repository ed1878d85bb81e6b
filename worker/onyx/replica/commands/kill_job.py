"""kill-job: a job ends for ever; one that was never submitted is killed in advance."""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, JobId, Position
from onyx.replica import jobs
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "kill-job"
RESCHEDULES = True


class Args(Arguments, frozen=True):
    job: JobId


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.job in replica.killed_jobs or args.job in replica.completed_jobs:
        return replica
    ended = jobs.end(replica, args.job)
    return replace(ended, killed_jobs=(*ended.killed_jobs, args.job))


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return {"killed": [job for job in new.killed_jobs if job not in old.killed_jobs]}


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    return ()
