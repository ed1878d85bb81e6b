"""What a task asks of another one that keeps state, and what it is answered.

A question names the groups whose states a batch needs, an answer has the states of the first of
them, as many as fit. Neither changes anything, so a question may be asked again, and what comes
twice is the same. Both pass by the limits of a link: a task asks for one batch at a time.
"""

from __future__ import annotations

import msgspec

from onyx.ids import AllocationVersion, GroupId, JobId, PeerId


class LookUp(msgspec.Struct, frozen=True):
    """A question to the peer that has some groups."""

    job: JobId
    version: AllocationVersion
    target: PeerId
    """Who keeps the state."""
    group: GroupId
    """The group of who asks."""
    asker: PeerId
    number: int
    """Number of the question; the answer has the same."""
    state: str
    """Name of the state within its task."""
    keys: bytes
    """Group keys, by `codec.questions`."""
    durable: bool
    """Whether the answer waits until all that is in it is durable."""


class Found(msgspec.Struct, frozen=True):
    """The answer to a question."""

    job: JobId
    version: AllocationVersion
    target: PeerId
    """Who has asked."""
    number: int
    states: bytes
    """What the first keys have, by `codec.questions`."""
    error: str = ""
    """Why there is no answer."""


Lookup = LookUp | Found
