"""Jobs that have ended are forgotten. The caller then replaces the origin and trims the log.

Without `jobs`, as in the original, all of them. Our caller names those of which it has deleted what
lies beside the log (frontiers): an id that is free again must not find the frontiers of another.
So nothing named can stay any more; a job that needs one of them, because it was submitted in its
place in this moment, cannot run and is killed.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import JobId, Position
from onyx.replica import jobs
from onyx.replica.command import Arguments, Diff, Job, no_reactions
from onyx.replica.state import Replica

NAME = "gc"


class Args(Arguments, frozen=True):
    id: str
    """The caller, who alone trims the log."""
    jobs: tuple[Job, ...] | None = None
    """Those to forget; others, and those that have not ended, stay."""
    taken_over: tuple[Job, ...] = ()
    """Jobs that need nothing any more of those in whose place they came."""


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    ended = (*replica.completed_jobs, *replica.killed_jobs)
    gone = frozenset(ended if args.jobs is None else args.jobs)
    forgotten = [job for job in ended if job in gone]
    if not forgotten:
        return replica
    for job, old in sorted(replica.resumed_jobs.items()):
        if old in forgotten and job in replica.jobs and job not in args.taken_over:
            replica = jobs.kill(replica, job)
    return replace(
        jobs.forget(replica, forgotten),
        completed_jobs=tuple(job for job in replica.completed_jobs if job not in gone),
        killed_jobs=tuple(job for job in replica.killed_jobs if job not in gone),
    )


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    """What was removed."""
    tasks = {job: list(old.tasks[job]) for job in sorted(old.tasks) if job not in new.tasks}
    return {
        "completed-jobs": _removed(old.completed_jobs, new.completed_jobs),
        "killed-jobs": _removed(old.killed_jobs, new.killed_jobs),
        "tasks": tasks or None,
        "allocations": None,
    }


def _removed(old: tuple[JobId, ...], new: tuple[JobId, ...]) -> list[JobId] | None:
    return [job for job in old if job not in new] or None


reactions = no_reactions
