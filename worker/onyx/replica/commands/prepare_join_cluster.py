"""First of the three phases of joining: a member is chosen that will watch the joiner.

The first group of all is in at once. When no member is free, the joiner is told to try again; it
may be that all members are dead, so it looks whether one of them lives (`ProbePulse`).
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, Position
from onyx.replica import members, ring
from onyx.replica.command import Arguments, Diff, Group
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "prepare-join-cluster"


class Args(Arguments, frozen=True):
    joiner: Group


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    joiner = args.joiner
    if joiner in replica.groups or joiner in replica.left or ring.is_joining(replica, joiner):
        return replica
    if not replica.groups:
        return members.join(replica, joiner)
    free, _ = ring.entrances(replica, joiner)
    if not free:
        return replace(replica, aborted=replica.aborted.set(joiner, None))
    return replace(
        replica,
        prepared=replica.prepared.set(free[position % len(free)], joiner),
        aborted=members.without(replica.aborted, joiner),
    )


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    if args.joiner in new.groups and args.joiner not in old.groups:
        return {"instant-join": args.joiner}
    watcher = ring.watcher_in(new.prepared, args.joiner)
    if watcher is not None and watcher not in old.prepared:
        return {"observer": watcher, "subject": args.joiner}
    return None


def reactions(
    old: Replica, new: Replica, diff: Diff, args: Args, me: GroupId
) -> tuple[Command, ...]:
    if diff is not None and diff.get("observer") == me:
        return (Command("notify-join-cluster", {"observer": args.joiner}),)
    if diff is None and me == args.joiner and me in new.aborted:
        return (Command("abort-join-cluster", {"id": me}),)
    return ()
