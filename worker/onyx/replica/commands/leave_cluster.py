"""One virtual peer leaves. A job with a task of flux policy `kill` that holds it is killed.

With `restart?` its group announces the peer again under a new id.
"""

from __future__ import annotations

from msgspec import field

from onyx.ids import GroupId, Position
from onyx.replica import jobs, members
from onyx.replica.command import Command, Group, Peer
from onyx.replica.commands.add_virtual_peer import AddVirtualPeer
from onyx.replica.state import Replica


class LeaveCluster(Command, frozen=True):
    """A virtual peer gives up its work and leaves."""

    id: Peer
    group_id: Group | None = None
    restart: bool = field(default=False, name="restart?")
    restarted_id: Peer | None = None
    """Id under which the peer comes back."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a peer that nobody knows."""
        if self.id not in replica.groups_reverse_index:
            return replica
        return members.remove_peers(jobs.kill_by_flux(replica, (self.id,)), (self.id,))

    def reactions(self, old: Replica, new: Replica, me: GroupId) -> tuple[Command, ...]:
        """The group of a peer that restarts announces it again."""
        mine = old.groups_reverse_index.get(self.id) == me
        if not (mine and self.restart and self.restarted_id):
            return ()
        return (
            AddVirtualPeer(
                id=self.restarted_id,
                group_id=me,
                peer_site=dict(old.peer_sites.get(self.id, {})),
                tags=old.peer_tags.get(self.id, ()),
            ),
        )
