"""The join protocol and departures, as the commands that a group owes by the replica alone.

Level-based: each function looks at the replica as it is, not at the entry that made it so. That is
what makes a jump over collected entries harmless.
"""

from __future__ import annotations

from onyx.ids import GroupId
from onyx.peer.events import AddPeers
from onyx.replica import ring
from onyx.replica.command import Command
from onyx.replica.commands import AddVirtualPeer, GroupLeaveCluster
from onyx.replica.commands.join_cluster import (
    AbortJoinCluster,
    AcceptJoinCluster,
    NotifyJoinCluster,
    PrepareJoinCluster,
    acceptance,
)
from onyx.replica.state import Replica

PROTOCOL = (
    PrepareJoinCluster,
    NotifyJoinCluster,
    AcceptJoinCluster,
    AbortJoinCluster,
    GroupLeaveCluster,
)
"""Commands that a group may write before it has joined."""


def additions(group: GroupId, event: AddPeers) -> tuple[Command, ...]:
    """Virtual peers that the group offers."""
    return tuple(
        AddVirtualPeer(id=peer, group_id=group, peer_site=dict(event.site), tags=tuple(event.tags))
        for peer in event.peers
    )


def is_known(replica: Replica, group: GroupId) -> bool:
    """Whether the replica still counts on this group: member or joiner."""
    return group in replica.groups or ring.is_joining(replica, group)


def owed(replica: Replica, me: GroupId, *, backing_off: bool) -> tuple[Command, ...]:
    """The join protocol's next commands of `me`, from the state alone.

    For a reader that has jumped to an origin: the entries to which these are the reactions may be
    among those collected. Writing one twice has no effect.
    """
    commands: list[Command] = []
    if me in replica.prepared:
        commands.append(NotifyJoinCluster(observer=replica.prepared[me]))
    watcher = ring.watcher_in(replica.accepted, me)
    if watcher is not None:
        commands.append(acceptance(replica, watcher, me))
    if not is_known(replica, me) and not backing_off:
        commands.append(PrepareJoinCluster(joiner=me))
    return tuple(commands)
