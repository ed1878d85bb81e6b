"""prepare-join-cluster: a group asks to join; the log decides who stitches it into the ring.

The only group joins at once. Otherwise the watcher is chosen by the position of the entry among the
candidates in sorted order, so every replica chooses the same; a joiner without candidates aborts.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, Position
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.members import join, watcher_of, without
from onyx.replica.state import Replica

NAME = "prepare-join-cluster"
RESCHEDULES = True


class Args(Arguments, frozen=True):
    joiner: GroupId


def candidates(replica: Replica, joiner: GroupId) -> tuple[GroupId, ...]:
    """Groups that may watch a joiner now: members that are not part of another join."""
    busy = {*replica.prepared, *replica.accepted, joiner}
    busy.update(each for each in replica.pairs if replica.pairs[each] in replica.prepared)
    return tuple(sorted({*replica.pairs, *replica.groups} - busy))


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    joiner = args.joiner
    if not replica.groups:
        return join(replica, joiner)
    if joiner in replica.groups or _is_joining(replica, joiner):
        return replica
    found = candidates(replica, joiner)
    if not found:
        return replace(replica, aborted=replica.aborted.set(joiner, None))
    return replace(
        replica,
        prepared=replica.prepared.set(found[position % len(found)], joiner),
        aborted=without(replica.aborted, joiner),
    )


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    if args.joiner in new.groups and args.joiner not in old.groups:
        return {"instant-join": args.joiner}
    watcher = watcher_of(new.prepared, args.joiner)
    if watcher is None or old.prepared.get(watcher) == args.joiner:
        return None
    return {"observer": watcher, "subject": args.joiner}


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    change = diff(old, new, args)
    if change is not None and change.get("observer") == me:
        return (Command("notify-join-cluster", {"observer": args.joiner}),)
    if change is None and me == args.joiner and me in new.aborted:
        return (Command("abort-join-cluster", {"id": me}),)
    return ()


def _is_joining(replica: Replica, group: GroupId) -> bool:
    relations = (replica.prepared, replica.accepted)
    return any(watcher_of(each, group) is not None for each in relations)
