"""group-leave-cluster: a group is gone; every trace of it goes and the ring is closed.

Written by whoever sees its pulse vanish, or by the group itself in an orderly leave.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, Position
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.members import (
    close_ring,
    remove_peers,
    watcher_of,
    without,
    without_group,
)
from onyx.replica.state import Replica

NAME = "group-leave-cluster"
RESCHEDULES = True


class Args(Arguments, frozen=True):
    id: GroupId


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    gone = args.id
    aborted = without(replica.aborted, gone)
    for relation in (replica.prepared, replica.accepted):
        if gone in relation:
            aborted = aborted.set(relation[gone], None)
    peers = (*replica.groups_index.get(gone, ()), *replica.orphaned_peers.get(gone, ()))
    rest = remove_peers(replica, tuple(dict.fromkeys(peers)))
    return replace(
        rest,
        groups=tuple(each for each in rest.groups if each != gone),
        groups_index=without(rest.groups_index, gone),
        orphaned_peers=without(rest.orphaned_peers, gone),
        last_sequence=without(rest.last_sequence, gone),
        prepared=without_group(rest.prepared, gone),
        accepted=without_group(rest.accepted, gone),
        aborted=aborted,
        left=rest.left.set(gone, None),
        pairs=close_ring(rest.pairs, gone),
    )


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    watcher = watcher_of(old.pairs, args.id)
    watch = {"observer": watcher, "subject": old.pairs.get(args.id)}
    return {"died": args.id, "updated-watch": watch}


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    attached = (old.prepared.get(args.id), old.accepted.get(args.id))
    if me in attached:
        return (Command("abort-join-cluster", {"id": me}),)
    return ()
