"""exhaust-input: partitions of an input task are read to the end and wholly processed.

Without partitions the task as a whole is exhausted, as in the original. With them it is when all
that are registered have been reported.
"""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from onyx.ids import GroupId, JobId, Position, TaskName
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "exhaust-input"
RESCHEDULES = False


class Args(Arguments, frozen=True):
    job: JobId
    task: TaskName
    partitions: tuple[int, ...] | None = None


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.job not in replica.jobs:
        return replica
    if args.partitions is not None:
        done = replica.exhausted_partitions.get(args.job, Map())
        for number in args.partitions:
            done = done.set(number, None)
        replica = replace(
            replica, exhausted_partitions=replica.exhausted_partitions.set(args.job, done)
        )
        if not _is_exhausted(replica, args, done):
            return replica
    tasks = replica.exhausted_inputs.get(args.job, Map()).set(args.task, None)
    return replace(replica, exhausted_inputs=replica.exhausted_inputs.set(args.job, tasks))


def _is_exhausted(replica: Replica, args: Args, done: Map[int, None]) -> bool:
    registered = replica.partitions.get(args.job, Map()).get(args.task)
    if registered is None:
        return False
    numbers = range(registered.first, registered.first + registered.count)
    return all(number in done for number in numbers)


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return {"job": args.job, "task": args.task}


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    return ()
