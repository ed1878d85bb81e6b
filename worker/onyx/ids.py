"""Typed identifiers. One module, because every layer speaks of the same things.

A `GroupId` is new for every incarnation of a process (after a lost session it takes a new one), so
it also serves as the incarnation in frames, log entries and staging directories.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NewType

JobId = NewType("JobId", str)
TaskName = NewType("TaskName", str)
GroupId = NewType("GroupId", str)
"""One incarnation of one worker process. Sorts and compares as text."""
PeerId = NewType("PeerId", str)
"""One virtual peer of one incarnation of a group."""
Position = NewType("Position", int)
"""Position of an entry in the log, from 0."""
AllocationVersion = NewType("AllocationVersion", int)
"""Position of the entry at which the allocation of a job last changed."""
Slot = NewType("Slot", int)
"""Small number of a peer on its task; kept while the peer stays there."""

NO_POSITION = Position(-1)
"""Before the first entry of the log."""


def name_number(*names: str) -> int:
    """A number of 64 bits for some names in order: the same everywhere and for ever."""
    named = "\0".join(names).encode()
    return int.from_bytes(blake2b(named, digest_size=8).digest(), "little")
