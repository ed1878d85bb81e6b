"""The replica as a pure state machine: an entry is applied, and what follows from it is returned.

`apply` is total. What cannot be applied (an unknown command, arguments that do not decode) is an
`Undecodable` and changes only `version` and `rejected`: every peer rejects it alike, so it can stop
nobody. There is no catch for exceptions: one would be a bug, and hiding it would make replicas
differ.

Scheduling is not called by commands. After a command, `settle` looks whether members or jobs have
changed and derives the rest, so that no command can forget it.
"""

from __future__ import annotations

from msgspec.structs import replace

from onyx.ids import GroupId
from onyx.replica import reconcile
from onyx.replica.command import Command, Entry
from onyx.replica.derived import settle
from onyx.replica.effects import Effect
from onyx.replica.members import LEFT_GROUPS_KEPT_MAX
from onyx.replica.state import Replica


def apply(replica: Replica, entry: Entry) -> Replica:
    """The replica after an entry. Never raises, whatever the entry says."""
    assert entry.position > replica.version, "entries are applied once, in the order of the log"
    if is_void(replica, entry):
        return replace(replica, version=entry.position)
    new = entry.command.apply(replica, entry.position)
    last = new.last_sequence
    if entry.writer and entry.sequence and GroupId(entry.writer) not in new.left:
        last = last.set(GroupId(entry.writer), entry.sequence)
    new = settle(replica, new, entry.position)
    _check(replica, new)
    return replace(new, version=entry.position, last_sequence=last)


def _check(old: Replica, new: Replica) -> None:
    """What every command leaves true, as far as a look at what it has changed is cheap. (The whole
    list is asked of every step of the simulator.)"""
    assert new.rejected >= old.rejected, "what was refused stays refused"
    if new.groups is not old.groups or new.pairs is not old.pairs:
        groups = frozenset(new.groups)
        assert len(groups) == len(new.groups), "a group joins once"
        assert not any(group in new.left for group in groups), "who has left stays away"
        assert len(new.pairs) == (len(groups) if len(groups) > 1 else 0), "all are in the ring"
        assert len(new.left) <= LEFT_GROUPS_KEPT_MAX, "of the dead the newest are remembered"
    if new.prepared is not old.prepared or new.accepted is not old.accepted:
        watchers = (*new.prepared, *new.accepted)
        assert len(frozenset(watchers)) == len(watchers), "a watcher takes in one at a time"
    if new.groups_reverse_index is not old.groups_reverse_index:
        known = len(new.peers) + sum(map(len, new.orphaned_peers.values()))
        assert len(new.groups_reverse_index) == known, "peers are members, or orphans of a group"
    if new.jobs is not old.jobs:
        records = (new.records[job] for job in new.jobs)
        assert all(each.run is not None for each in records), "who runs has a running half"


def reactions(entry: Entry, old: Replica, new: Replica, me: GroupId) -> tuple[Command, ...]:
    """What the group `me` and its virtual peers write to the log in return."""
    return () if is_void(old, entry) else entry.command.reactions(old, new, me)


def effects(entry: Entry, old: Replica, new: Replica, me: GroupId) -> tuple[Effect, ...]:
    """What the group `me` must do in the world, in order: stops before starts."""
    found = tuple(reconcile.changes(old, new, me))
    if is_void(old, entry):
        return found
    return found + entry.command.effects(entry.position, old, new, me)


def is_void(replica: Replica, entry: Entry) -> bool:
    """Whether an entry has no effect because of who wrote it: the dead, or a repeat."""
    writer = GroupId(entry.writer)
    if not writer:
        return False
    return writer in replica.left or 0 < entry.sequence <= replica.last_sequence.get(writer, 0)
