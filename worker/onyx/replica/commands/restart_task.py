"""A virtual peer gives up a task because a lifecycle says `restart`, and a new one comes instead.

The entry only counts; leaving and joining have entries of their own. The count is in the replica
because the new peer has a new id, and whoever takes the task over may be in another process.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import Position
from onyx.replica.command import Arguments, Diff, Job, Task, no_reactions
from onyx.replica.state import NOTHING, Replica

NAME = "restart-task"


class Args(Arguments, frozen=True):
    job: Job
    task: Task
    afresh: bool = False
    """The peer had worked for long without a failure: what was before does not count."""


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.job not in replica.jobs or args.task not in replica.tasks.get(args.job, ()):
        return replica
    counts = replica.restarts.get(args.job, NOTHING)
    count = 1 if args.afresh else counts.get(args.task, 0) + 1
    restarts = replica.restarts.set(args.job, counts.set(args.task, count))
    return replace(replica, restarts=restarts)


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    if old.restarts is new.restarts:
        return None
    return {"job": args.job, "task": args.task, "restarts": new.restarts[args.job][args.task]}


reactions = no_reactions
