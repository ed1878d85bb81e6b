"""The fixed contract of a log command: one module each, four functions, all pure.

    NAME                                        as written in the log
    Args                                        frozen struct; what does not decode is rejected
    apply(replica, args, position) -> Replica   the same object when nothing changes; never raises
    diff(old, new, args) -> Diff                a small value: what happened
    reactions(old, new, diff, args, me)         what the group `me` writes in return

A command changes only what it is about. What follows for every command alike (scheduling, slots,
versions, sealers) is done once, in `replica.machine`.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct

from onyx.ids import GroupId, JobId, PeerId, Position, TaskName
from onyx.model.names import NAME
from onyx.path_names import CHARACTERS_MAX, PATH_NAME
from onyx.replica.entry import Command
from onyx.replica.state import Replica

_PATH_NAME = Meta(max_length=CHARACTERS_MAX, pattern=rf"\A({PATH_NAME})\Z")

Group = Annotated[GroupId, _PATH_NAME]
Peer = Annotated[PeerId, _PATH_NAME]
Job = Annotated[JobId, _PATH_NAME]
Digest = Annotated[str, Meta(max_length=CHARACTERS_MAX, pattern=rf"\A({PATH_NAME})?\Z")]
"""Of a document in the chunk store; empty when there is none."""
Task = Annotated[TaskName, Meta(max_length=63, pattern=rf"\A({NAME})\Z")]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Percent = Annotated[int, Meta(ge=0, le=100)]

Diff = dict[str, Any] | None


class Arguments(Struct, frozen=True, rename="kebab"):
    """Base of all `Args`: keys are written with hyphens; keys of later versions are ignored."""


class CommandModule(Protocol):
    """What the registry asks of a module."""

    @property
    def NAME(self) -> str: ...

    @property
    def Args(self) -> type[Arguments]: ...

    def apply(self, replica: Replica, args: Any, position: Position, /) -> Replica: ...

    def diff(self, old: Replica, new: Replica, args: Any, /) -> Diff: ...

    def reactions(
        self, old: Replica, new: Replica, diff: Diff, args: Any, me: GroupId, /
    ) -> tuple[Command, ...]: ...


def no_reactions(
    old: Replica, new: Replica, diff: Diff, args: Any, me: GroupId
) -> tuple[Command, ...]:
    """For commands to which nobody reacts."""
    return ()
