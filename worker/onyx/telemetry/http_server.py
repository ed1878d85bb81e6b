"""The HTTP endpoint of a process: `/metrics`, `/livez` and `/readyz`; of a worker also `/lag`.

prometheus_client's server was rejected: it starts a thread for every connection and has no health
pages. Here one thread reads requests and a few threads answer them. So nobody who
reaches the port can keep a scraper or the kubelet out, and an unanswered probe would end the pod.
`/livez`: no thread of the process is stuck. `/readyz`: the process takes part in the cluster. If
not, the answer is 503 with the reason, which the kubelet shows as an event of the pod.

A connection that sends nothing, or one byte at a time, costs a descriptor and a few bytes, and no
thread. When there are too many, the oldest is closed: a scraper or a kubelet sends its request with
the connection, so an old one is from neither. The timeout covers the whole request: with a timeout
for each read, one byte now and then would hold an answer for ever.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from threading import BoundedSemaphore, Event, Thread
from typing import Protocol, cast
from urllib.parse import parse_qs

import msgspec
from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder

from onyx.errors import Unavailable

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
THREADS_MAX = 2
"""For health, and as many for metrics: a scraper that does not read must not delay a probe."""
ANSWERS_MAX = 16
"""Requests that are answered or wait for that, of each of the two; others are closed."""
ANSWER_TIMEOUT_S = 5.0
"""Longest time that a client takes to read its answer."""
_TEXT = "text/plain; charset=utf-8"


class ProbeRequest(msgspec.Struct, frozen=True):
    """A GET; whoever is given it answers and closes the connection."""

    connection: socket.socket
    path: str
    accept: str
    """The types that the client takes."""
    names: tuple[str, ...]
    """The names of the series that the client wants (`?name[]=`); empty: all."""


Check = Callable[[], bool | str]
"""True when all is well, otherwise what is not."""
Answer = tuple[int, str, bytes]
"""Status, type and body."""
Page = Callable[[ProbeRequest], Answer]


class Collected(Protocol):
    """Series, at the time of asking."""

    def collect(self) -> Iterable[Metric]:
        """All of them."""


class Registry(Collected, Protocol):
    """What `/metrics` shows: a `CollectorRegistry`, or what answers like one."""

    def restricted_registry(self, names: Iterable[str]) -> Collected:
        """Only the series of these names, and no more work than these are."""


class TelemetryServer:
    """Serves from its own threads until `close`.

    Arguments:
        host: address to listen on.
        port: port to listen on; 0 takes a free one, see `port`.
        registry: what `/metrics` shows; None: there is no such page.
        healthy: true unless the process is stuck and should be restarted.
        ready: true when the process takes part in the cluster.
        listener: a socket that listens already, to be used instead of `host` and `port`.
        lag: what `/lag` shows, as JSON; None: there is no such page.

    Raises:
        Unavailable: the port is taken.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: Registry | None,
        healthy: Check,
        ready: Check,
        listener: socket.socket | None = None,
        lag: Callable[[], bytes] | None = None,
    ) -> None:
        pages: dict[str, Page] = {
            "/livez": lambda _: _verdict(healthy),
            "/readyz": lambda _: _verdict(ready),
        }
        if registry is not None:
            pages["/metrics"] = lambda request: _metrics(registry, request)
        if lag is not None:
            pages["/lag"] = lambda _: (200, "application/json", lag())
        health, others = _Answering("health"), _Answering("metrics")
        answering = {"/metrics": others, "/lag": others}
        self._answering = [health, others]
        try:
            listener = listener or socket.create_server((host, port), backlog=BACKLOG)
        except OSError as error:
            raise Unavailable(
                f"the metrics endpoint cannot listen on {host}:{port}: {error}; "
                "set telemetry.metrics_port to 0 to take a free port"
            ) from error
        self.port: int = listener.getsockname()[1]

        def serve(request: ProbeRequest) -> None:
            page = pages.get(request.path)
            answering.get(request.path, health).submit(
                request, lambda: _missing(pages) if page is None else page(request)
            )

        self._waiting = WaitingRequest(listener, serve)
        self._waiting.start()

    def close(self) -> None:
        """Stop listening and end the threads."""
        self._waiting.close()
        for each in self._answering:
            each.close()


class _Half(msgspec.Struct):
    """What has come of a request."""

    ends_s: float
    data: bytes = b""


class WaitingRequest:
    """Accepts, reads requests and passes them on, in a thread of its own, until `close`."""

    def __init__(self, listener: socket.socket, serve: Callable[[ProbeRequest], None]) -> None:
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


def _read_request(connection: socket.socket, data: bytes) -> ProbeRequest | None:
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
    return ProbeRequest(
        connection, path, headers.get("accept", ""), tuple(parse_qs(query).get(NAMES, ()))
    )


class _Answering:
    """Some threads that make answers and send them, and a bounded number of requests for them."""

    def __init__(self, what: str) -> None:
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix=f"onyx-{what}")
        self._answers = BoundedSemaphore(ANSWERS_MAX)

    def submit(self, request: ProbeRequest, page: Callable[[], Answer]) -> None:
        if not self._answers.acquire(blocking=False):
            request.connection.close()
            return
        self._pool.submit(self._answer, request, page)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _answer(self, request: ProbeRequest, page: Callable[[], Answer]) -> None:
        try:
            with contextlib.suppress(OSError), request.connection as connection:
                connection.settimeout(ANSWER_TIMEOUT_S)
                connection.sendall(_encoded(*page()))
                connection.shutdown(socket.SHUT_WR)
        finally:
            self._answers.release()


def _encoded(status: int, kind: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nServer: onyx\r\nConnection: close\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("latin-1") + body


def _missing(pages: Mapping[str, Page]) -> Answer:
    return 404, _TEXT, f"pages: {' '.join(sorted(pages))}\n".encode()


def _verdict(check: Check) -> Answer:
    found = check()
    return (200, _TEXT, b"ok\n") if found is True else (503, _TEXT, f"{found or 'no'}\n".encode())


def _metrics(registry: Registry, request: ProbeRequest) -> Answer:
    encode, kind = choose_encoder(request.accept)
    wanted = registry.restricted_registry(request.names) if request.names else registry
    return 200, kind, encode(wanted)
