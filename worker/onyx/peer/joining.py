"""What the ring of groups asks of one of them, read from the replica alone.

Level-based: each function looks at the replica as it is, not at the entry that made it so. That is
what makes a jump over collected entries harmless.
"""

from __future__ import annotations

from onyx.ids import GroupId, PeerId
from onyx.peer.events import AddPeers
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
    return Command("prepare-join-cluster", {"joiner": group})


def departure(group: GroupId) -> Command:
    return Command("group-leave-cluster", {"id": group})


def removal(group: GroupId, peer: PeerId) -> Command:
    return Command("leave-cluster", {"id": peer, "group-id": group})


def additions(group: GroupId, event: AddPeers) -> tuple[Command, ...]:
    common = {"group-id": group, "peer-site": dict(event.site), "tags": list(event.tags)}
    return tuple(Command("add-virtual-peer", {"id": peer, **common}) for peer in event.peers)


def watcher_of(replica: Replica, joiner: GroupId) -> GroupId | None:
    """The group through which `joiner` is joining now, if any."""
    for relation in (replica.prepared, replica.accepted):
        for watcher in sorted(relation):
            if relation[watcher] == joiner:
                return watcher
    return None


def successor(replica: Replica, watcher: GroupId) -> GroupId:
    """Whom a joiner at `watcher` will watch: the other end of the gap that it enters."""
    return replica.pairs.get(watcher, watcher)


def watch_targets(replica: Replica, me: GroupId) -> tuple[GroupId, ...]:
    """Groups whose pulse `me` must watch: successor and joiner; while joining, both ends of the
    gap (the watcher may die before it has notified, and nobody else would free the joiner)."""
    wanted = {relation.get(me) for relation in (replica.pairs, replica.prepared, replica.accepted)}
    watcher = watcher_of(replica, me)
    if watcher is not None:
        wanted |= {watcher, successor(replica, watcher)}
    return tuple(sorted(group for group in wanted if group is not None and group != me))


def same_ring(old: Replica, new: Replica) -> bool:
    """The cheap answer for the many entries that change nobody's watches."""
    return old.pairs is new.pairs and old.prepared is new.prepared and old.accepted is new.accepted


def is_known(replica: Replica, group: GroupId) -> bool:
    """Whether the replica still counts on this group: member or joiner."""
    return group in replica.groups or watcher_of(replica, group) is not None


def owed(replica: Replica, me: GroupId, *, backing_off: bool) -> tuple[Command, ...]:
    """The join protocol's next commands of `me`, from the state alone.

    For a reader that has jumped to an origin: the entries to which these are the reactions may be
    among those collected. Writing one twice has no effect.
    """
    commands: list[Command] = []
    if me in replica.prepared:
        commands.append(Command("notify-join-cluster", {"observer": replica.prepared[me]}))
    watcher = watcher_of(replica, me)
    if watcher is not None and watcher in replica.accepted:
        commands.append(_accept(replica, watcher, me))
    if watcher is None and me not in replica.groups and not backing_off:
        commands.append(prepare(me))
    return tuple(commands)


def _accept(replica: Replica, watcher: GroupId, me: GroupId) -> Command:
    return Command(
        "accept-join-cluster",
        {
            "observer": me,
            "subject": successor(replica, watcher),
            "accepted-observer": watcher,
            "accepted-joiner": me,
        },
    )
