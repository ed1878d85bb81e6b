"""notify-join-cluster: the watcher tells the joiner that it is watched, and whom to watch."""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, Position
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.members import watcher_of, without
from onyx.replica.state import Replica

NAME = "notify-join-cluster"
RESCHEDULES = False


class Args(Arguments, frozen=True):
    observer: GroupId
    """The joiner, who is going to observe."""


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    watcher = watcher_of(replica.prepared, args.observer)
    if watcher is None or args.observer in replica.groups:
        return replica
    return replace(
        replica,
        accepted=replica.accepted.set(watcher, args.observer),
        prepared=without(replica.prepared, watcher),
    )


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    watcher = watcher_of(old.prepared, args.observer)
    if watcher is None or new.accepted.get(watcher) != args.observer:
        return None
    return {
        "observer": args.observer,
        "subject": old.pairs.get(watcher, watcher),
        "accepted-observer": watcher,
        "accepted-joiner": args.observer,
    }


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    if me != args.observer:
        return ()
    change = diff(old, new, args)
    if change is not None:
        return (Command("accept-join-cluster", change),)
    joining = watcher_of(new.accepted, me) is not None
    if me in new.groups or joining:
        return ()
    return (Command("abort-join-cluster", {"id": me}),)
