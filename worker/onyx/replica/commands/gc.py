"""gc: everything about jobs that have ended is forgotten, and which groups have left.

The caller then replaces the origin by the replica at this entry and trims the log; that is an
effect of the client, not of the replica.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, Position
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.members import without
from onyx.replica.state import NOTHING, Replica

NAME = "gc"
RESCHEDULES = False

JOB_KEYS = (
    "job_digests",
    "tasks",
    "input_tasks",
    "output_tasks",
    "exempt_tasks",
    "acker_percentage",
    "acker_exclude_inputs",
    "acker_exclude_outputs",
    "task_schedulers",
    "percentages",
    "task_percentages",
    "saturation",
    "task_saturation",
    "min_required_peers",
    "flux_policies",
    "required_tags",
    "ackers",
)
"""What is kept of a job when it has ended, until gc."""


class Args(Arguments, frozen=True):
    id: str


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    gone = (*replica.completed_jobs, *replica.killed_jobs)
    kept = {name: without(getattr(replica, name), *gone) for name in JOB_KEYS}
    return replace(replica, completed_jobs=(), killed_jobs=(), left=NOTHING, **kept)


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return {"completed-jobs": list(old.completed_jobs), "killed-jobs": list(old.killed_jobs)}


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    return ()
