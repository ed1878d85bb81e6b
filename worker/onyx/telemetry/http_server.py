"""The HTTP endpoint of a process: `/metrics`, `/livez` and `/readyz`.

prometheus_client's server was rejected: it starts a thread for every connection and has no health
pages. Here one thread reads requests (`http_requests`) and a few threads answer them. So nobody who
reaches the port can keep a scraper or the kubelet out, and an unanswered probe would end the pod.
`/livez`: no thread of the process is stuck. `/readyz`: the process takes part in the cluster. If
not, the answer is 503 with the reason, which the kubelet shows as an event of the pod.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from threading import BoundedSemaphore
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder

from onyx.errors import Unavailable
from onyx.telemetry.http_requests import BACKLOG, Request, Waiting

THREADS_MAX = 2
"""For health, and as many for metrics: a scraper that does not read must not delay a probe."""
ANSWERS_MAX = 16
"""Requests that are answered or wait for that, of each of the two; others are closed."""
ANSWER_TIMEOUT_S = 5.0
"""Longest time that a client takes to read its answer."""

Check = Callable[[], bool | str]
"""True when all is well, otherwise what is not."""
Answer = tuple[int, str, bytes]
"""Status, type and body."""
Page = Callable[[Request], Answer]
_TEXT = "text/plain; charset=utf-8"


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
    ) -> None:
        pages: dict[str, Page] = {
            "/livez": lambda _: _verdict(healthy),
            "/readyz": lambda _: _verdict(ready),
        }
        if registry is not None:
            pages["/metrics"] = lambda request: _metrics(registry, request)
        answering = {"/metrics": _Answering("metrics")}
        health = _Answering("health")
        self._answering = [health, *answering.values()]
        try:
            listener = listener or socket.create_server((host, port), backlog=BACKLOG)
        except OSError as error:
            raise Unavailable(
                f"the metrics endpoint cannot listen on {host}:{port}: {error}; "
                "set telemetry.metrics_port to 0 to take a free port"
            ) from error
        self.port: int = listener.getsockname()[1]

        def serve(request: Request) -> None:
            page = pages.get(request.path)
            answering.get(request.path, health).submit(
                request, lambda: _missing(pages) if page is None else page(request)
            )

        self._waiting = Waiting(listener, serve)
        self._waiting.start()

    def close(self) -> None:
        """Stop listening and end the threads."""
        self._waiting.close()
        for each in self._answering:
            each.close()


class _Answering:
    """Some threads that make answers and send them, and a bounded number of requests for them."""

    def __init__(self, what: str) -> None:
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix=f"onyx-{what}")
        self._answers = BoundedSemaphore(ANSWERS_MAX)

    def submit(self, request: Request, page: Callable[[], Answer]) -> None:
        if not self._answers.acquire(blocking=False):
            request.connection.close()
            return
        self._pool.submit(self._answer, request, page)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _answer(self, request: Request, page: Callable[[], Answer]) -> None:
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


def _metrics(registry: Registry, request: Request) -> Answer:
    encode, kind = choose_encoder(request.accept)
    wanted = registry.restricted_registry(request.names) if request.names else registry
    return 200, kind, encode(wanted)
