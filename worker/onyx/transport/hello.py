"""What a link is given: its two ends, the process around it, the stream that carries it; and the
hello, the first frame from either end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from onyx.base.seams import Clock, Randomness
from onyx.ids import GroupId
from onyx.settings import TransportSettings
from onyx.telemetry.labels import Refusal
from onyx.transport.frames import decoder
from onyx.transport.frames.packets import PROTOCOL, FrameError, Hello
from onyx.transport.inbox import Inboxes
from onyx.transport.interface import Handlers

HELLO_BYTES_MAX = 65_536


class CallRefused(FrameError):
    """A call is not let in."""

    def __init__(self, reason: Refusal, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def read_hello(data: bytes, tenancy: str, here: str) -> Hello:
    """The hello in a first frame, to the group `here`.

    Raises:
        CallRefused: it is none, or not one for this group.
    """
    try:
        hello = decoder.decode(data, HELLO_BYTES_MAX)
    except FrameError as error:
        raise CallRefused(Refusal.GARBAGE, str(error)) from error
    if not isinstance(hello, Hello):
        raise CallRefused(Refusal.GARBAGE, "the first frame is not a hello")
    if hello.protocol != PROTOCOL:
        raise CallRefused(
            Refusal.PROTOCOL,
            f"group {hello.group} speaks protocol {hello.protocol} and group {here} protocol "
            f"{PROTOCOL}: run the same version of Onyx on all workers",
        )
    if hello.tenancy != tenancy:
        raise CallRefused(
            Refusal.TENANCY,
            f"group {hello.group} is of tenancy {hello.tenancy!r} and group {here} of another one: "
            "check tenancy_id and the address that the worker advertises",
        )
    if hello.target != here:
        raise CallRefused(
            Refusal.GROUP,
            f"group {hello.group} looks for group {hello.target}, but this is {here}",
        )
    return hello


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
    machine: int = 0
    """This one, as its groups have it in their hello; 0: nobody knows."""

    def nonce(self) -> int:
        """A number that no other session has; never 0."""
        return self.randomness.getrandbits(63) + 1
