"""The contract that every command module keeps.

    NAME                                    name in the log
    Args                                    frozen struct of the arguments
    apply(replica, args, position)          the next replica; the same object when nothing changes
    diff(old, new, args)                    what changed, as plain data, or None
    reactions(old, new, args, position, me) entries that group `me` must write in return

`apply` is pure and total for well-formed arguments. Scheduling is not done here but once by
`machine.apply`, for the commands that say so by RESCHEDULES.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import msgspec

from onyx.ids import GroupId, PeerId, Position
from onyx.replica.entry import Command
from onyx.replica.state import Replica

Diff = dict[str, Any] | None


class Arguments(msgspec.Struct, frozen=True, rename="kebab"):
    """Base of all argument structs: kebab-case in the log, unknown ones are ignored."""


class CommandModule(Protocol):
    @property
    def NAME(self) -> str: ...

    @property
    def RESCHEDULES(self) -> bool:
        """Whether members or jobs may have changed, so that peers may have to move."""
        ...

    @property
    def Args(self) -> type[Arguments]: ...

    def apply(self, replica: Replica, args: Any, position: Position, /) -> Replica: ...

    def diff(self, old: Replica, new: Replica, args: Any, /) -> Diff: ...

    def reactions(
        self, old: Replica, new: Replica, args: Any, position: Position, me: GroupId, /
    ) -> tuple[Command, ...]: ...


def change_state(replica: Replica, peer: PeerId, before: str, after: str) -> Replica:
    """A peer in one state is in another now; in any other state nothing changes."""
    if replica.peer_state.get(peer) != before:
        return replica
    return replace(replica, peer_state=replica.peer_state.set(peer, after))


def state_diff(old: Replica, new: Replica, peer: PeerId) -> Diff:
    """The new state of a peer, if it changed."""
    state = new.peer_state.get(peer)
    return {peer: state} if state != old.peer_state.get(peer) else None
