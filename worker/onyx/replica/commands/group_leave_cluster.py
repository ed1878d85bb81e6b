"""A group is gone: written by its watcher, or by itself when it leaves in order.

A job is killed that had a peer of it on a task of flux policy `kill`. The original looks for the
group among the peers there, finds none, and the job goes on without part of its state.
"""

from __future__ import annotations

from onyx.ids import GroupId, Position
from onyx.replica import jobs, members, ring
from onyx.replica.command import Arguments, Diff, Group
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "group-leave-cluster"


class Args(Arguments, frozen=True):
    id: Group


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.id in replica.left:
        return replica
    peers = replica.groups_index.get(args.id, ())
    return members.leave(jobs.kill_by_flux(replica, peers), args.id, position)


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    _, observer, subject = ring.close(old.pairs, args.id)
    return {"died": args.id, "updated-watch": {"observer": observer, "subject": subject}}


def reactions(
    old: Replica, new: Replica, diff: Diff, args: Args, me: GroupId
) -> tuple[Command, ...]:
    if me in members.joiners_at(old, args.id):
        return (Command("abort-join-cluster", {"id": me}),)
    return ()
