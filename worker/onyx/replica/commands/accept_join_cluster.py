"""accept-join-cluster: the joiner watches its successor, so the ring can be closed around it."""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, Position
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.members import join, watcher_of, without
from onyx.replica.state import Replica

NAME = "accept-join-cluster"
RESCHEDULES = True


class Args(Arguments, frozen=True):
    accepted_observer: GroupId
    accepted_joiner: GroupId
    observer: GroupId | None = None
    subject: GroupId | None = None


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    watcher, joiner = args.accepted_observer, args.accepted_joiner
    target = replica.pairs.get(watcher, watcher)
    expected = replica.accepted.get(watcher) == joiner
    if joiner in replica.groups or target not in replica.groups or not expected:
        return replica
    stitched = replace(
        replica,
        pairs=replica.pairs.set(watcher, joiner).set(joiner, target),
        accepted=without(replica.accepted, watcher),
    )
    return join(stitched, joiner)


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    if args.accepted_joiner in old.groups or args.accepted_joiner not in new.groups:
        return None
    return {"observer": args.accepted_observer, "subject": args.accepted_joiner}


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    if me != args.accepted_joiner or me in new.groups:
        return ()
    if watcher_of(new.accepted, me) is not None and _may_still_join(new, args):
        return ()
    return (Command("abort-join-cluster", {"id": me}),)


def _may_still_join(replica: Replica, args: Args) -> bool:
    """A repeat for another watcher: the entry that belongs to the present one is still to come."""
    return replica.accepted.get(args.accepted_observer) != args.accepted_joiner
