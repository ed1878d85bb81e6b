"""Changes of membership that several commands share: groups, their peers, the ring."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from immutables import Map

from onyx.ids import GroupId, PeerId
from onyx.replica.state import Replica

K = TypeVar("K")
V = TypeVar("V")


def without(mapping: Map[K, V], *keys: K) -> Map[K, V]:
    """The map without some keys, which it need not have."""
    for key in keys:
        if key in mapping:
            mapping = mapping.delete(key)
    return mapping


def join(replica: Replica, group: GroupId) -> Replica:
    """The group is a member, and its peers that were added before it count from now on."""
    orphans = replica.orphaned_peers.get(group, ())
    return replace(
        replica,
        groups=(*replica.groups, group),
        aborted=without(replica.aborted, group),
        peers=replica.peers + tuple(peer for peer in orphans if peer not in replica.peers),
        orphaned_peers=without(replica.orphaned_peers, group),
    )


def watcher_of(relation: Map[GroupId, GroupId], watched: GroupId) -> GroupId | None:
    """Who is related to a group in `pairs`, `prepared` or `accepted`."""
    return next((each for each in sorted(relation) if relation[each] == watched), None)


def without_group(relation: Map[GroupId, GroupId], group: GroupId) -> Map[GroupId, GroupId]:
    """The relation without the pairs that a group is in, on either side."""
    gone = [each for each in sorted(relation) if group in (each, relation[each])]
    return without(relation, *gone)


def close_ring(pairs: Map[GroupId, GroupId], gone: GroupId) -> Map[GroupId, GroupId]:
    """Who watched the group that is gone watches whom it watched; the last one watches nobody."""
    watcher, watched = watcher_of(pairs, gone), pairs.get(gone)
    closed = without_group(pairs, gone)
    if watcher is None or watched is None or watcher == watched or watcher == gone:
        return closed
    return closed.set(watcher, watched)


def remove_peers(replica: Replica, peers: tuple[PeerId, ...]) -> Replica:
    """No trace of these peers is left."""
    gone = frozenset(peers)
    allocations, slots = replica.allocations, replica.task_slot_ids
    for job in sorted(allocations):
        for task in sorted(allocations[job]):
            there = allocations[job][task]
            if not gone.isdisjoint(there):
                kept = tuple(peer for peer in there if peer not in gone)
                allocations = allocations.set(job, allocations[job].set(task, kept))
    for job in sorted(slots):
        for task in sorted(slots[job]):
            if any(peer in slots[job][task] for peer in peers):
                kept_slots = without(slots[job][task], *peers)
                slots = slots.set(job, slots[job].set(task, kept_slots))
    return replace(
        replica,
        peers=tuple(peer for peer in replica.peers if peer not in gone),
        groups_reverse_index=without(replica.groups_reverse_index, *peers),
        peer_state=without(replica.peer_state, *peers),
        peer_sites=without(replica.peer_sites, *peers),
        peer_tags=without(replica.peer_tags, *peers),
        ready=without(replica.ready, *peers),
        allocations=allocations,
        task_slot_ids=slots,
    )
