"""An entry of the log, and the contract of its command: a frozen struct of its arguments, with
what it does as methods.

A command is one module in `replica.commands` and one row of its table. Its name in the log is the
name of its class in kebab case. All methods are pure:

    apply(replica, position)             the replica after it; the same object if nothing changes
    reactions(old, new, me)              what the group `me` writes to the log in return
    effects(position, old, new, me)      what the group `me` must do once, because of this entry

A command changes only what it is about. What follows for every command alike (scheduling, slots,
versions, sealers) is derived once, in `replica.derived`.

A name and a dict were rejected: a misspelled key would be found by the replicas, after it is in the
log for ever, and not by the type checker.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from onyx.base.path_names import CHARACTERS_MAX, PATH_NAME
from onyx.ids import GroupId, PeerId, Position
from onyx.replica.effects import Effect
from onyx.replica.state import Replica

_PATH_NAME = Meta(max_length=CHARACTERS_MAX, pattern=rf"\A({PATH_NAME})\Z")

Group = Annotated[GroupId, _PATH_NAME]
Peer = Annotated[PeerId, _PATH_NAME]


class Command(Struct, frozen=True, rename="kebab", omit_defaults=True):
    """Base of all commands. Constraints of fields are checked by the codec, not by `__init__`.

    In the log, keys are written with hyphens; keys that a command does not have are ignored.
    """

    NAME: ClassVar[str] = ""
    """Name in the log."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.NAME = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    @property
    def chunks(self) -> tuple[str, ...]:
        """Digests of the documents in the chunk store that it names."""
        return ()

    def apply(self, replica: Replica, position: Position) -> Replica:
        """The replica after this command; never raises."""
        raise NotImplementedError(self.NAME)

    def reactions(self, old: Replica, new: Replica, me: GroupId) -> tuple[Command, ...]:
        """Commands that the group `me` appends in return."""
        return ()

    def effects(
        self, position: Position, old: Replica, new: Replica, me: GroupId
    ) -> tuple[Effect, ...]:
        """What `me` does because of this entry alone; all else follows from the replicas."""
        return ()


class Undecodable(Command, frozen=True):
    """Stands for an entry whose bytes or arguments do not decode. Nobody writes it.

    Every replica rejects it alike. An exception instead would stop all peers at the same position,
    again after each restart.
    """

    fn: str
    """Name of the command as it was written; empty when the bytes are no entry at all."""
    reason: str

    def apply(self, replica: Replica, position: Position) -> Replica:
        """Only the count of rejected entries changes."""
        return replace(replica, rejected=replica.rejected + 1)


class Entry(msgspec.Struct, frozen=True):
    """A command at its position in the log."""

    position: Position
    command: Command
    writer: str = ""
    """Group (incarnation) that wrote it; empty for clients, whose commands are idempotent by id."""
    sequence: int = 0
    """Writer's own counter, from 1: a repeat of (writer, sequence) has no effect. 0 for clients."""
    parent: Position | None = None
    """Entry to which this one is a reaction."""
    by: str = ""
    """Who did it, for people; empty for what groups do. No replica depends on it."""
    at_ms: int = 0
    """When, by the clock of who wrote it; 0: that is not known. No replica depends on it."""
