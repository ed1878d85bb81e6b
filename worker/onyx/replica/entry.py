"""A log entry as a value: the command, who wrote it, and where it stands."""

from __future__ import annotations

import msgspec

from onyx.ids import Position
from onyx.replica.command import Command


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
