"""The port for HTTP of a process, and clients that write to it what they like."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace
from tests.support.servers.fake_requests import FakeRequests

from onyx.base.event_loop import EventLoop
from onyx.base.seams import SystemClock
from onyx.gateway.gateway import Gateway, open_gateway
from onyx.settings import HttpSettings, Settings
from onyx.telemetry.interface import NULL_GROUP

Make = Callable[..., Gateway]


@contextlib.contextmanager
def gateways(requests: FakeRequests) -> Iterator[Make]:
    loop, opened = EventLoop("onyx-requests"), []

    def make(**http: Any) -> Gateway:
        found = Settings(http=replace(HttpSettings(port=0), **http))
        gateway = open_gateway(found, requests, loop, SystemClock(), NULL_GROUP)
        gateway.start()
        opened.append(gateway)
        return gateway

    try:
        yield make
    finally:
        requests.hold = False
        for gateway in opened:
            gateway.close()
        loop.close()


def connected(gateway: Gateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=10)


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
