"""Jobs that have ended are forgotten. The caller then replaces the origin and trims the log."""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import Position
from onyx.replica import jobs
from onyx.replica.commands.contract import Arguments, Diff, no_reactions
from onyx.replica.state import Replica

NAME = "gc"


class Args(Arguments, frozen=True):
    id: str
    """The caller, who alone trims the log."""


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    ended = (*replica.completed_jobs, *replica.killed_jobs)
    if not ended:
        return replica
    return replace(jobs.forget(replica, ended), completed_jobs=(), killed_jobs=())


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    """What was removed."""
    tasks = {job: list(old.tasks[job]) for job in sorted(old.tasks) if job not in new.tasks}
    return {
        "completed-jobs": list(old.completed_jobs) or None,
        "killed-jobs": list(old.killed_jobs) or None,
        "tasks": tasks or None,
        "allocations": None,
    }


reactions = no_reactions
