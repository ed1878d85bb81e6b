"""A group is gone: written by its watcher, or by itself when it leaves in order.

A job with a task of flux policy `kill` is not killed by this (as in the original): it goes on with
fewer peers there. Only the leaving of a single peer kills it.
"""

from __future__ import annotations

from onyx.ids import GroupId, Position
from onyx.replica import members, ring
from onyx.replica.commands.contract import Arguments, Diff, Group
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "group-leave-cluster"


class Args(Arguments, frozen=True):
    id: Group


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.id in replica.left:
        return replica
    return members.leave(replica, args.id, position)


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    _, observer, subject = ring.close(old.pairs, args.id)
    return {"died": args.id, "updated-watch": {"observer": observer, "subject": subject}}


def reactions(
    old: Replica, new: Replica, diff: Diff, args: Args, me: GroupId
) -> tuple[Command, ...]:
    if me in members.joiners_at(old, args.id):
        return (Command("abort-join-cluster", {"id": me}),)
    return ()
