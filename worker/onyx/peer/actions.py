"""What a peer group wants done, as data: the effects of the replica and its own."""

from __future__ import annotations

from dataclasses import dataclass

from onyx.ids import Position
from onyx.replica.effects import Effect
from onyx.replica.entry import Command


@dataclass(frozen=True, slots=True)
class Append:
    """Enqueue these commands for the log, in order."""

    commands: tuple[Command, ...]
    parent: Position | None = None
    """Entry to which they are the reaction."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop reading, emitting and checkpointing in all tasks; keep everything."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The session has survived: go on where the tasks were paused."""


@dataclass(frozen=True, slots=True)
class StartPauseTimer:
    """Return `PauseDue(suspension)` after `lease.pause_delay_s`."""

    suspension: int


@dataclass(frozen=True, slots=True)
class StartBackOff:
    """Return `BackOffElapsed` after a random time around `join_back_off_s`."""


@dataclass(frozen=True, slots=True)
class Restart:
    """This incarnation is dead. Stop its tasks, drop its queue, start a new one with new ids."""

    reason: str


@dataclass(frozen=True, slots=True)
class Left:
    """The group has left the cluster: tasks are stopped, the session may be closed."""


Action = Effect | Append | Pause | Resume | StartPauseTimer | StartBackOff | Restart | Left
"""`WatchPulse` and `UnwatchPulse` are idempotent; `WatchPulse` of a dead group reports at once."""
