"""The join protocol and departures, as the commands that a group owes by the replica alone.

Level-based: each function looks at the replica as it is, not at the entry that made it so. That is
what makes a jump over collected entries harmless.
"""

from __future__ import annotations

from onyx.ids import GroupId, PeerId
from onyx.peer.events import AddPeers
from onyx.replica import ring
from onyx.replica.entry import Command
from onyx.replica.state import Replica

PROTOCOL = frozenset(
    {
        "prepare-join-cluster",
        "notify-join-cluster",
        "accept-join-cluster",
        "abort-join-cluster",
        "group-leave-cluster",
    }
)
"""Commands that a group may write before it has joined."""


def prepare(group: GroupId) -> Command:
    """The first phase of joining: find a group that will watch this one."""
    return Command("prepare-join-cluster", {"joiner": group})


def departure(group: GroupId) -> Command:
    """The group has left or is dead: its peers lose their tasks."""
    return Command("group-leave-cluster", {"id": group})


def removal(group: GroupId, peer: PeerId) -> Command:
    """One virtual peer leaves."""
    return Command("leave-cluster", {"id": peer, "group-id": group})


def additions(group: GroupId, event: AddPeers) -> tuple[Command, ...]:
    """Virtual peers that the group offers."""
    common = {"group-id": group, "peer-site": dict(event.site), "tags": list(event.tags)}
    return tuple(Command("add-virtual-peer", {"id": peer, **common}) for peer in event.peers)


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
        commands.append(Command("notify-join-cluster", {"observer": replica.prepared[me]}))
    watcher = ring.watcher_in(replica.accepted, me)
    if watcher is not None:
        commands.append(_accept(replica, watcher, me))
    if not is_known(replica, me) and not backing_off:
        commands.append(prepare(me))
    return tuple(commands)


def _accept(replica: Replica, watcher: GroupId, me: GroupId) -> Command:
    return Command(
        "accept-join-cluster",
        {
            "observer": me,
            "subject": ring.successor(replica, watcher),
            "accepted-observer": watcher,
            "accepted-joiner": me,
        },
    )
