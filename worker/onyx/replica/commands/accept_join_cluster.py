"""Last phase of joining: the joiner is stitched into the ring between its watcher and successor."""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, Position
from onyx.replica import members, ring
from onyx.replica.command import Arguments, Diff, Group
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "accept-join-cluster"


class Args(Arguments, frozen=True):
    observer: Group
    """The joiner."""
    subject: Group
    """Whom it watches; the ring as it is now counts, which may have changed since."""
    accepted_observer: Group
    """The watcher that takes it in."""
    accepted_joiner: Group


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    watcher, joiner = args.accepted_observer, args.accepted_joiner
    target = ring.successor(replica, watcher)
    if joiner in replica.groups or joiner in replica.left or target not in replica.groups:
        return replica
    if replica.accepted.get(watcher) != joiner:
        return replica
    pairs = replica.pairs.set(watcher, joiner).set(joiner, target)
    accepted = replica.accepted.delete(watcher)
    return members.join(replace(replica, pairs=pairs, accepted=accepted), joiner)


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    if args.accepted_joiner in new.groups and args.accepted_joiner not in old.groups:
        return {"observer": args.accepted_observer, "subject": args.accepted_joiner}
    return None


def reactions(
    old: Replica, new: Replica, diff: Diff, args: Args, me: GroupId
) -> tuple[Command, ...]:
    if me != args.accepted_joiner or diff is not None:
        return ()
    this_attempt = new.accepted.get(args.accepted_observer) == me
    if ring.is_joining(new, me) and not this_attempt:
        return ()
    return (Command("abort-join-cluster", {"id": me}),)
