"""Reads HTTP requests: one thread for all connections whose request is not complete.

A connection that sends nothing, or one byte at a time, costs a descriptor and a few bytes, and no
thread. When there are too many, the oldest is closed: a scraper or a kubelet sends its request with
the connection, so an old one is from neither. The timeout covers the whole request: with a timeout
for each read, one byte now and then would hold an answer for ever.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Event, Thread
from typing import cast
from urllib.parse import parse_qs

import msgspec

BACKLOG = 128
"""Connections that the system holds until they are accepted."""
CONNECTIONS_MAX = 64
"""Connections whose request has not come; for another one the oldest is closed."""
REQUEST_BYTES_MAX = 8_192
REQUEST_TIMEOUT_S = 5.0
NAMES = "name[]"
"""The name as Prometheus' clients of other languages have it."""
LOOK_INTERVAL_S = 0.2
"""Between two looks whether a request is late."""
_END = b"\r\n\r\n"


class Request(msgspec.Struct, frozen=True):
    """A GET; whoever is given it answers and closes the connection."""

    connection: socket.socket
    path: str
    accept: str
    """The types that the client takes."""
    names: tuple[str, ...]
    """The names of the series that the client wants (`?name[]=`); empty: all."""


class _Half(msgspec.Struct):
    """What has come of a request."""

    ends_s: float
    data: bytes = b""


class Waiting:
    """Accepts, reads requests and passes them on, in a thread of its own, until `close`."""

    def __init__(self, listener: socket.socket, serve: Callable[[Request], None]) -> None:
        """`serve` only enqueues."""
        listener.setblocking(False)
        self._listener = listener
        self._serve = serve
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._halves: OrderedDict[socket.socket, _Half] = OrderedDict()
        self._stop = Event()
        self._woken, self._waking = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = Thread(target=self._run, name="onyx-telemetry", daemon=True)

    def start(self) -> None:
        """Accept connections, on a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Close the listener and all connections that wait."""
        self._stop.set()
        self._waking.close()
        self._thread.join()
        for connection in list(self._halves):
            self._drop(connection)
        self._selector.close()
        self._woken.close()
        self._listener.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select(LOOK_INTERVAL_S):
                if isinstance(key.data, _Half):
                    self._read(cast(socket.socket, key.fileobj), key.data)
                elif key.fileobj is self._listener:
                    self._accept()
            self._drop_late()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # it has gone again, or there is no descriptor left
            self._drop_oldest()
            self._stop.wait(LOOK_INTERVAL_S)
            return
        if len(self._halves) >= CONNECTIONS_MAX:
            self._drop_oldest()
        connection.setblocking(False)
        half = _Half(time.monotonic() + REQUEST_TIMEOUT_S)
        self._halves[connection] = half
        self._selector.register(connection, selectors.EVENT_READ, half)

    def _read(self, connection: socket.socket, half: _Half) -> None:
        if connection not in self._halves:  # it had to go meanwhile
            return
        try:
            data = connection.recv(REQUEST_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        half.data += data
        whole = _END in half.data
        if not whole and data and len(half.data) < REQUEST_BYTES_MAX:
            return
        found = _read_request(connection, half.data) if whole else None
        if found is None:
            self._drop(connection)
            return
        self._forget(connection)
        self._serve(found)

    def _drop_late(self) -> None:
        now_s = time.monotonic()
        while self._halves and next(iter(self._halves.values())).ends_s <= now_s:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        if self._halves:
            self._drop(next(iter(self._halves)))

    def _drop(self, connection: socket.socket) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: socket.socket) -> None:
        del self._halves[connection]
        self._selector.unregister(connection)


def _read_request(connection: socket.socket, data: bytes) -> Request | None:
    """None when it is no GET."""
    first, *lines = data.partition(_END)[0].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[0] != "GET" or not words[2].startswith("HTTP/1."):
        return None
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    path, _, query = words[1].partition("?")
    return Request(
        connection, path, headers.get("accept", ""), tuple(parse_qs(query).get(NAMES, ()))
    )
