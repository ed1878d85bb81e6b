"""The inputs of a job stop reading; what is pending completes, and then the job.

From here everything goes the way of a source that has ended: partitions are exhausted, outputs
sealed. There is no way back. A suspended job stays suspended: draining needs peers, and taking them
is what its owner has forbidden; `resume-job` lets it finish.

A job without peers of which some input has never listed its source has never read anything, so it
is complete at once. Waiting for peers to find that out could take for ever.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import JobId, Position
from onyx.replica import jobs
from onyx.replica.command import Arguments, Diff, Job, no_reactions
from onyx.replica.state import NOTHING, Replica

NAME = "drain-job"


class Args(Arguments, frozen=True):
    job: Job


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.job not in replica.jobs or args.job in replica.draining_jobs:
        return replica
    if _has_never_read(replica, args.job):
        return jobs.complete(replica, args.job)
    return replace(replica, draining_jobs=replica.draining_jobs.set(args.job, None))


def _has_never_read(replica: Replica, job: JobId) -> bool:
    """Peers are ready, and read, only when every input has registered its partitions."""
    registered = replica.partitions.get(job, NOTHING)
    unread = any(task not in registered for task in replica.input_tasks.get(job, ()))
    return unread and job not in replica.allocations


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    changed = args.job in old.jobs and args.job not in old.draining_jobs
    return {"job": args.job, "job-completed?": args.job not in new.jobs} if changed else None


reactions = no_reactions
