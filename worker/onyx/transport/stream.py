"""What a link is given: its two ends, the process around it, a stream that carries it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from onyx.base.seams import Clock, Randomness
from onyx.ids import GroupId
from onyx.settings import TransportSettings
from onyx.transport.inbox import Inboxes
from onyx.transport.interface import Handlers


class Stream:
    """One gRPC call that carries a link for a while."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.closed = threading.Event()
        self.reason = ""
        """Why this side closed it, if the other end was at fault."""
        self._cancel = cancel

    def close(self) -> None:
        """End the call, from any thread."""
        if not self.closed.is_set():
            self.closed.set()
            self._cancel()


class Ends(msgspec.Struct, frozen=True):
    """Who speaks with whom."""

    tenancy: str
    here: GroupId
    there: GroupId


class Surroundings(msgspec.Struct, frozen=True):
    """What all links of a process share."""

    settings: TransportSettings
    inboxes: Inboxes
    handlers: Handlers
    room: Callable[[], None]
    clock: Clock
    randomness: Randomness

    def nonce(self) -> int:
        """A number that no other session has; never 0."""
        return self.randomness.getrandbits(63) + 1
