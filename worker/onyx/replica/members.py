"""Who is in the cluster, and who watches whom: the changes that commands share, and the ring.

Scheduling follows by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from immutables import Map
from msgspec.structs import replace

from onyx.ids import GroupId, JobId, PeerId, Position
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
    assert group not in replica.groups, "a group joins once"
    assert group not in replica.left, "who has left stays away"
    return replace(
        replica,
        groups=(*replica.groups, group),
        aborted=without(replica.aborted, group),
        peers=replica.peers + replica.orphaned_peers.get(group, ()),
        orphaned_peers=without(replica.orphaned_peers, group),
    )


def leave(replica: Replica, group: GroupId, position: Position) -> Replica:
    """All traces of a group but one: that it left. Those who were joining through it must retry."""
    pairs, _, _ = close_ring(replica.pairs, group)
    assert group not in pairs, "nobody watches who has left"
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


def watcher_in(relation: Map[GroupId, GroupId], joiner: GroupId) -> GroupId | None:
    """The group through which `joiner` enters, in `prepared` or `accepted`."""
    return min((watcher for watcher in relation if relation[watcher] == joiner), default=None)


def is_joining(replica: Replica, group: GroupId) -> bool:
    """Whether an attempt of this group to join has begun and not ended."""
    return any(
        watcher_in(relation, group) is not None for relation in (replica.prepared, replica.accepted)
    )


def successor(replica: Replica, watcher: GroupId) -> GroupId:
    """Whom the joiner at `watcher` will watch: a group alone in the ring is its own successor."""
    return replica.pairs.get(watcher, watcher)


def entrances(replica: Replica, joiner: GroupId) -> tuple[tuple[GroupId, ...], tuple[GroupId, ...]]:
    """Groups that may take the joiner in, and those that may not now. Both sorted.

    A group that already takes somebody in may not, nor may the one that watches such a group while
    the newcomer is not yet announced: their ends of the ring are about to change.
    """
    members = {*replica.groups, *replica.pairs} - {joiner}
    busy = {group for group in members if group in replica.prepared or group in replica.accepted}
    busy |= {group for group in members if replica.pairs.get(group, joiner) in replica.prepared}
    return tuple(sorted(members - busy)), tuple(sorted(busy))


def watched_by(replica: Replica, me: GroupId) -> tuple[GroupId, ...]:
    """Groups whose pulse `me` must watch now, sorted.

    Its successor and the joiner that it takes in; while it joins, also both ends of the gap: nobody
    else would free a joiner whose watcher dies before it has spoken.
    """
    wanted = {relation.get(me) for relation in (replica.pairs, replica.prepared, replica.accepted)}
    for relation in (replica.prepared, replica.accepted):
        watcher = watcher_in(relation, me)
        if watcher is not None:
            wanted |= {watcher, successor(replica, watcher)}
    return tuple(sorted(group for group in wanted if group is not None and group != me))


def close_ring(
    pairs: Map[GroupId, GroupId], gone: GroupId
) -> tuple[Map[GroupId, GroupId], GroupId | None, GroupId | None]:
    """The ring without `gone`, and who now watches whom there (both None if it was in no ring)."""
    if gone not in pairs:
        return pairs, None, None
    subject = pairs[gone]
    observer = watcher_in(pairs, gone)
    pairs = pairs.delete(gone)
    if observer is None or observer == gone:
        return pairs, None, None
    pairs = pairs.delete(observer) if observer == subject else pairs.set(observer, subject)
    return pairs, observer, subject
