"""register-partitions: the source partitions of an input task, numbered once for all peers.

The first entry wins. Numbers follow on within the job, so that a root needs no task.
"""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from onyx.ids import GroupId, JobId, Position, TaskName
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.state import Partitions, Replica

NAME = "register-partitions"
RESCHEDULES = False


class Args(Arguments, frozen=True):
    job: JobId
    task: TaskName
    count: int
    digest: str


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    known: Map[TaskName, Partitions] = replica.partitions.get(args.job, Map())
    inputs = replica.input_tasks.get(args.job, ())
    if args.job not in replica.jobs or args.task not in inputs or args.task in known:
        return replica
    if args.count < 0:
        return replica
    first = max((each.first + each.count for each in known.values()), default=0)
    registered = known.set(args.task, Partitions(first, args.count, args.digest))
    return replace(replica, partitions=replica.partitions.set(args.job, registered))


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return {"job": args.job, "task": args.task} if new.partitions != old.partitions else None


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    return ()
