"""A group announces one of its virtual peers; before the group has joined, it is an orphan."""

from __future__ import annotations

from typing import Annotated

from immutables import Map
from msgspec import Meta
from msgspec.structs import replace

from onyx.ids import Position
from onyx.replica.command import Command, Group, Peer
from onyx.replica.state import Replica

Site = dict[str, str | int | float | bool | None]
Tags = Annotated[tuple[str, ...], Meta(max_length=1_000)]


class AddVirtualPeer(Command, frozen=True):
    """A peer of a group exists and may get work."""

    id: Peer
    group_id: Group
    peer_site: Site | None = None
    """`address` of the group's endpoint, and what else others should know."""
    tags: Tags = ()

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a peer that is known, and for a group that has left."""
        peer, group = self.id, self.group_id
        if group in replica.left or peer in replica.groups_reverse_index:
            return replica
        joined = group in replica.groups
        orphans = replica.orphaned_peers
        return replace(
            replica,
            peers=(*replica.peers, peer) if joined else replica.peers,
            orphaned_peers=orphans
            if joined
            else orphans.set(group, (*orphans.get(group, ()), peer)),
            groups_index=replica.groups_index.set(
                group, (*replica.groups_index.get(group, ()), peer)
            ),
            groups_reverse_index=replica.groups_reverse_index.set(peer, group),
            peer_state=replica.peer_state.set(peer, "idle"),
            peer_sites=replica.peer_sites.set(peer, Map(self.peer_site or {})),
            peer_tags=replica.peer_tags.set(peer, tuple(sorted(self.tags)))
            if self.tags
            else replica.peer_tags,
        )
