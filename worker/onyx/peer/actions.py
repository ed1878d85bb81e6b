"""Actions of a peer group, as data: the effects of the replica, and those of the group itself."""

from __future__ import annotations

import msgspec

from onyx.ids import Position
from onyx.replica.command import Command
from onyx.replica.effects import Effect


class Append(msgspec.Struct, frozen=True):
    """Enqueue these commands for the log, in order."""

    commands: tuple[Command, ...]
    parent: Position | None = None
    """Entry to which they are the reaction."""


class Pause(msgspec.Struct, frozen=True):
    """No task may act: nothing is read, sent or written until `Resume`. State is kept."""


class Resume(msgspec.Struct, frozen=True):
    """The session has survived: tasks act again, from where they paused."""


class StartPauseTimer(msgspec.Struct, frozen=True):
    """Return `PauseDue(suspension)` after `lease.pause_delay_s`."""

    suspension: int


class StartBackOff(msgspec.Struct, frozen=True):
    """Return `BackOffElapsed` after a random time around `join_back_off_s`."""


class Restart(msgspec.Struct, frozen=True):
    """This incarnation is dead: stop its tasks, and start a new one with new ids."""

    reason: str


class Left(msgspec.Struct, frozen=True):
    """The group has left the cluster: tasks are stopped, the session may be closed."""


Action = Effect | Append | Pause | Resume | StartPauseTimer | StartBackOff | Restart | Left
"""`WatchPulse` and `UnwatchPulse` are idempotent; `WatchPulse` of a dead group reports at once."""
