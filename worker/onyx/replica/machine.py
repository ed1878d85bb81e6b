"""The replica as a pure state machine: an entry is applied, and what follows from it is returned.

`apply` is total. What cannot be applied (an unknown command, arguments that do not decode) changes
only `version` and `rejected`: every peer refuses it alike, so it can stop nobody. There is no catch
for other exceptions: one would be a bug, and hiding it would make replicas differ.

Scheduling is not called by commands. After a command, `settle` looks whether members or jobs have
changed and derives the rest, so that no command can forget it.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from onyx.ids import GroupId
from onyx.replica import reconcile
from onyx.replica.command import Arguments, CommandModule, Diff
from onyx.replica.commands import COMMANDS
from onyx.replica.derived import settle
from onyx.replica.effects import Effect
from onyx.replica.entry import Command, Entry
from onyx.replica.state import Replica

_UNREADABLE = (msgspec.ValidationError, TypeError, ValueError, RecursionError)
"""What reading of arguments may raise."""


def apply(replica: Replica, entry: Entry) -> Replica:
    """The replica after an entry. Never raises, whatever the entry says."""
    if is_void(replica, entry):
        return replace(replica, version=entry.position)
    found = _decoded(entry.command)
    if found is None:
        return replace(replica, version=entry.position, rejected=replica.rejected + 1)
    module, args = found
    new = module.apply(replica, args, entry.position)
    last = new.last_sequence
    if entry.writer and entry.sequence and GroupId(entry.writer) not in new.left:
        last = last.set(GroupId(entry.writer), entry.sequence)
    new = settle(replica, new, entry.position)
    return replace(new, version=entry.position, last_sequence=last)


def diff(entry: Entry, old: Replica, new: Replica) -> Diff:
    """A small value that says what the entry did; None when it did nothing worth a word."""
    found = None if is_void(old, entry) else _decoded(entry.command)
    if found is None:
        return None
    module, args = found
    return module.diff(old, new, args)


def reactions(entry: Entry, old: Replica, new: Replica, me: GroupId) -> tuple[Command, ...]:
    """What the group `me` and its virtual peers write to the log in return."""
    found = None if is_void(old, entry) else _decoded(entry.command)
    if found is None:
        return ()
    module, args = found
    return module.reactions(old, new, module.diff(old, new, args), args, me)


def effects(entry: Entry, old: Replica, new: Replica, me: GroupId) -> tuple[Effect, ...]:
    """What the group `me` must do in the world, in order: stops before starts."""
    found = tuple(reconcile.changes(old, new, me))
    if is_void(old, entry) or (decoded := _decoded(entry.command)) is None:
        return found
    _, args = decoded
    return (*found, *reconcile.of_entry(entry, args, old, new, me))


def is_void(replica: Replica, entry: Entry) -> bool:
    """Whether an entry has no effect because of who wrote it: the dead, or a repeat."""
    writer = GroupId(entry.writer)
    if not writer:
        return False
    return writer in replica.left or 0 < entry.sequence <= replica.last_sequence.get(writer, 0)


def refusal(command: Command) -> str:
    """Why every replica rejects a command; empty when it is accepted."""
    module = COMMANDS.get(command.fn)
    if module is None:
        return str(command.args.get("reason", "no such command"))
    try:
        _arguments(module, command)
    except _UNREADABLE as error:
        return str(error)
    return ""


def _decoded(command: Command) -> tuple[CommandModule, Arguments] | None:
    module = COMMANDS.get(command.fn)
    if module is None:
        return None
    try:
        return module, _arguments(module, command)
    except _UNREADABLE:
        return None


def _arguments(module: CommandModule, command: Command) -> Arguments:
    return msgspec.convert(dict(command.args), module.Args)
