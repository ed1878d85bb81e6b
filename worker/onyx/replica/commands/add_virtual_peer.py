"""A group announces one of its virtual peers; before the group has joined, it is an orphan."""

from __future__ import annotations

from dataclasses import replace

from immutables import Map
from msgspec import field

from onyx.ids import Position
from onyx.replica.command import Arguments, Diff, Group, Peer, no_reactions
from onyx.replica.state import Replica

NAME = "add-virtual-peer"

Site = dict[str, str | int | float | bool | None]


class Args(Arguments, frozen=True):
    id: Peer
    group_id: Group
    peer_site: Site | None = field(default=None)
    """`address` of the group's endpoint, and what else others should know."""
    tags: tuple[str, ...] | None = None


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    peer, group = args.id, args.group_id
    if group in replica.left or peer in replica.groups_reverse_index:
        return replica
    joined = group in replica.groups
    orphans = replica.orphaned_peers
    return replace(
        replica,
        peers=(*replica.peers, peer) if joined else replica.peers,
        orphaned_peers=orphans if joined else orphans.set(group, (*orphans.get(group, ()), peer)),
        groups_index=replica.groups_index.set(group, (*replica.groups_index.get(group, ()), peer)),
        groups_reverse_index=replica.groups_reverse_index.set(peer, group),
        peer_state=replica.peer_state.set(peer, "idle"),
        peer_sites=replica.peer_sites.set(peer, Map(args.peer_site or {})),
        peer_tags=replica.peer_tags.set(peer, tuple(sorted(args.tags)))
        if args.tags
        else replica.peer_tags,
    )


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return {"virtual-peer-id": args.id}


reactions = no_reactions
