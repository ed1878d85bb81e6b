"""The ring of watchers, read from the replica: who watches whom, and where a joiner may enter."""

from __future__ import annotations

from immutables import Map

from onyx.ids import GroupId
from onyx.replica.state import Replica


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


def close(
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
