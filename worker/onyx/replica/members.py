"""Changes of who is in the cluster, shared by the commands. Scheduling follows by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from immutables import Map
from msgspec.structs import replace

from onyx.ids import GroupId, JobId, PeerId, Position
from onyx.replica import ring
from onyx.replica.state import JobRecord, Replica

K = TypeVar("K")
V = TypeVar("V")

LEFT_GROUPS_KEPT_MAX = 1_000
"""Groups remembered as dead. Fencing keeps the dead from writing; this only stops what one wrote
just before it was declared dead, so the newest are enough."""


def without(mapping: Map[K, V], *keys: K) -> Map[K, V]:
    """The mapping without those of the keys that it has; the same object when it has none."""
    for key in keys:
        if key in mapping:
            mapping = mapping.delete(key)
    return mapping


def join(replica: Replica, group: GroupId) -> Replica:
    """The group becomes a member, and the peers that it announced before do too."""
    return replace(
        replica,
        groups=(*replica.groups, group),
        aborted=without(replica.aborted, group),
        peers=replica.peers + replica.orphaned_peers.get(group, ()),
        orphaned_peers=without(replica.orphaned_peers, group),
    )


def leave(replica: Replica, group: GroupId, position: Position) -> Replica:
    """All traces of a group but one: that it left. Those who were joining through it must retry."""
    pairs, _, _ = ring.close(replica.pairs, group)
    stranded = joiners_at(replica, group)
    replica = remove_peers(replica, replica.groups_index.get(group, ()))
    return replace(
        replica,
        groups=tuple(each for each in replica.groups if each != group),
        groups_index=without(replica.groups_index, group),
        orphaned_peers=without(replica.orphaned_peers, group),
        pairs=pairs,
        prepared=_unrelated(replica.prepared, group),
        accepted=_unrelated(replica.accepted, group),
        aborted=without(replica.aborted, group).update(dict.fromkeys(stranded)),
        left=_remember(replica.left, group, position),
        last_sequence=without(replica.last_sequence, group),
    )


def joiners_at(replica: Replica, group: GroupId) -> tuple[GroupId, ...]:
    """Who is joining through `group`."""
    found = (relation.get(group) for relation in (replica.prepared, replica.accepted))
    return tuple(joiner for joiner in found if joiner is not None)


def remove_peers(replica: Replica, peers: Iterable[PeerId]) -> Replica:
    """Virtual peers leave: their registrations and their tasks."""
    gone = frozenset(peers)
    if not gone:
        return replica
    groups_index = replica.groups_index
    orphaned = replica.orphaned_peers
    index = replica.groups_reverse_index
    for group in sorted({index[peer] for peer in sorted(gone) if peer in index}):
        groups_index = _drop(groups_index, group, gone)
        orphaned = _drop(orphaned, group, gone)
    ordered = sorted(gone)
    return replace(
        replica,
        peers=tuple(peer for peer in replica.peers if peer not in gone),
        groups_index=groups_index,
        groups_reverse_index=without(replica.groups_reverse_index, *ordered),
        orphaned_peers=orphaned,
        peer_state=without(replica.peer_state, *ordered),
        peer_sites=without(replica.peer_sites, *ordered),
        peer_tags=without(replica.peer_tags, *ordered),
        records=_deallocate(replica, gone),
    )


def _drop(
    index: Map[GroupId, tuple[PeerId, ...]], group: GroupId, gone: frozenset[PeerId]
) -> Map[GroupId, tuple[PeerId, ...]]:
    if group not in index:
        return index
    rest = tuple(peer for peer in index[group] if peer not in gone)
    return index.set(group, rest) if rest else index.delete(group)


def _deallocate(replica: Replica, gone: frozenset[PeerId]) -> Map[JobId, JobRecord]:
    records = replica.records
    for job in replica.jobs:
        run = replica.run(job)
        allocation = run.allocation
        for task, peers in run.allocation.items():
            if not gone.isdisjoint(peers):
                rest = tuple(peer for peer in peers if peer not in gone)
                allocation = allocation.set(task, rest)
        if allocation is not run.allocation:
            record = replace(records[job], run=replace(run, allocation=allocation))
            records = records.set(job, record)
    return records


def _unrelated(relation: Map[GroupId, GroupId], group: GroupId) -> Map[GroupId, GroupId]:
    """A relation without the pairs that have `group` on either side."""
    return without(relation, *(each for each in relation if group in (each, relation[each])))


def _remember(
    left: Map[GroupId, Position], group: GroupId, position: Position
) -> Map[GroupId, Position]:
    left = left.set(group, position)
    if len(left) > LEFT_GROUPS_KEPT_MAX:
        left = left.delete(min(left, key=lambda each: (left[each], each)))
    return left
