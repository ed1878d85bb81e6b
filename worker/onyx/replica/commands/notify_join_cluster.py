"""Second phase of joining: the watcher watches the joiner, which now watches its successor."""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, Position
from onyx.replica import ring
from onyx.replica.command import Arguments, Diff, Group
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "notify-join-cluster"


class Args(Arguments, frozen=True):
    observer: Group
    """The joiner, as the original calls it."""


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    watcher = ring.watcher_in(replica.prepared, args.observer)
    if watcher is None or args.observer in replica.groups:
        return replica
    return replace(
        replica,
        prepared=replica.prepared.delete(watcher),
        accepted=replica.accepted.set(watcher, args.observer),
    )


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    watcher = ring.watcher_in(new.accepted, args.observer)
    if watcher is None or watcher in old.accepted:
        return None
    return {
        "observer": args.observer,
        "subject": ring.successor(new, watcher),
        "accepted-observer": watcher,
        "accepted-joiner": args.observer,
    }


def reactions(
    old: Replica, new: Replica, diff: Diff, args: Args, me: GroupId
) -> tuple[Command, ...]:
    if me != args.observer or me in new.groups:
        return ()
    if diff is not None:
        return (Command("accept-join-cluster", diff),)
    # A late notice of an earlier attempt must not end the attempt that is under way.
    return () if ring.is_joining(new, me) else (Command("abort-join-cluster", {"id": me}),)
