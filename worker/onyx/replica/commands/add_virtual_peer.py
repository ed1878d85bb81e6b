"""add-virtual-peer: a group offers a peer; it counts when the group has joined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from immutables import Map

from onyx.ids import GroupId, PeerId, Position
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "add-virtual-peer"
RESCHEDULES = True


class Args(Arguments, frozen=True):
    id: PeerId
    group_id: GroupId
    peer_site: dict[str, Any] | None = None
    tags: tuple[str, ...] | None = None


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    peer, group = args.id, args.group_id
    if group in replica.left or peer in replica.groups_reverse_index:
        return replica
    index = replica.groups_index
    registered = replace(
        replica,
        groups_index=index.set(group, (*index.get(group, ()), peer)),
        groups_reverse_index=replica.groups_reverse_index.set(peer, group),
        peer_state=replica.peer_state.set(peer, "idle"),
        peer_sites=replica.peer_sites.set(peer, Map(args.peer_site or {})),
        peer_tags=replica.peer_tags.set(peer, args.tags or ()),
    )
    if group in replica.groups:
        return replace(registered, peers=(*replica.peers, peer))
    orphans = (*replica.orphaned_peers.get(group, ()), peer)
    return replace(registered, orphaned_peers=replica.orphaned_peers.set(group, orphans))


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return {"virtual-peer-id": args.id}


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    return ()
