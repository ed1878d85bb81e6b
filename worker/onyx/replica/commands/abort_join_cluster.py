"""abort-join-cluster: an attempt to join is erased; the group tries again after a back-off."""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, Position
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.members import watcher_of, without
from onyx.replica.state import Replica

NAME = "abort-join-cluster"
RESCHEDULES = False


class Args(Arguments, frozen=True):
    id: GroupId


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.id in replica.groups or args.id in replica.peers:
        return replica
    prepared, accepted = replica.prepared, replica.accepted
    for watcher in (watcher_of(prepared, args.id), watcher_of(accepted, args.id)):
        if watcher is not None:
            prepared = without(prepared, watcher) if watcher in prepared else prepared
            accepted = without(accepted, watcher) if watcher in accepted else accepted
    return replace(
        replica,
        prepared=prepared,
        accepted=accepted,
        aborted=replica.aborted.set(args.id, None),
    )


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    dropped = old.prepared != new.prepared or old.accepted != new.accepted
    return {"aborted": args.id} if dropped else None


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    if me != args.id or me in new.groups or me in new.peers:
        return ()
    return (Command("prepare-join-cluster", {"joiner": me}),)
