"""The port for HTTP of a process, and clients that write to it what they like."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace
from tests.support.servers.fake_requests import FakeRequests

from onyx.base.seams import SystemClock
from onyx.gateway.front import Front, open_front
from onyx.gateway.loop import Loop
from onyx.settings import HttpSettings, Settings
from onyx.telemetry.interface import NULL_GROUP

Make = Callable[..., Front]


@contextlib.contextmanager
def fronts(requests: FakeRequests) -> Iterator[Make]:
    loop, opened = Loop(), []

    def make(**http: Any) -> Front:
        found = Settings(http=replace(HttpSettings(port=0), **http))
        front = open_front(found, requests, loop, SystemClock(), NULL_GROUP)
        assert front is not None
        front.start()
        opened.append(front)
        return front

    try:
        yield make
    finally:
        requests.hold = False
        for front in opened:
            front.close()
        loop.close()


def connected(front: Front) -> socket.socket:
    return socket.create_connection(("127.0.0.1", front.port), timeout=10)


def answers(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(65_536):
            found += data
    return found


def answer(connection: socket.socket) -> bytes:
    """One answer of a connection that stays."""
    found = b""
    while not found.endswith(b"}}"):
        data = connection.recv(65_536)
        assert data, found
        found += data
    return found
