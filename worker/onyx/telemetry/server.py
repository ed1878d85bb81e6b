"""The HTTP endpoint of a process: `/metrics`, `/livez` and `/readyz`.

prometheus_client brings a server, which starts a thread for every connection and has no health
pages. This one has a few threads and refuses more, because a scraper that hangs must not cost the
worker memory. `/livez` says that the process is not stuck, `/readyz` that it takes part; when not,
the answer is 503 with the reason, which the kubelet shows as an event of the pod.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import BoundedSemaphore, Thread
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from onyx.errors import Unavailable

THREADS_MAX = 4
CONNECTIONS_MAX = 16
"""Connections served or waiting; further ones are closed at once."""
REQUEST_TIMEOUT_S = 5.0

Check = Callable[[], bool | str]
"""True when all is well, otherwise what is not."""
Answer = tuple[int, str, bytes]
"""Status, type and body."""
Page = Callable[[str], Answer]
"""What is answered to a client that accepts certain types."""
_TEXT = "text/plain; charset=utf-8"


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
        registry: CollectorRegistry | None,
        healthy: Check,
        ready: Check,
        listener: socket.socket | None = None,
    ) -> None:
        pages: dict[str, Page] = {
            "/livez": lambda _: _verdict(healthy),
            "/readyz": lambda _: _verdict(ready),
        }
        if registry is not None:
            pages["/metrics"] = lambda accept: _metrics(registry, accept)
        handler = type("Handler", (_Handler,), {"pages": pages})
        try:
            self._server = _BoundedServer((host, port), handler, listener)
        except OSError as error:
            raise Unavailable(
                f"the metrics endpoint cannot listen on {host}:{port}: {error}; "
                "set telemetry.metrics_port to 0 to take a free port"
            ) from error
        self.port: int = self._server.server_address[1]
        self._thread = Thread(
            target=self._server.serve_forever, args=(0.2,), name="onyx-telemetry", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening and end the threads."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _BoundedServer(HTTPServer):
    """An HTTP server with a fixed number of threads."""

    request_queue_size = CONNECTIONS_MAX

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        listener: socket.socket | None,
    ) -> None:
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="onyx-telemetry")
        self._places = BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(address, handler, bind_and_activate=listener is None)
        if listener is not None:
            self.socket.close()
            self.socket, self.server_address = listener, listener.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._pool.submit(self._serve, request, client_address)

    def server_close(self) -> None:
        super().server_close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        try:
            with contextlib.suppress(OSError):
                self.finish_request(request, client_address)
        finally:
            self.shutdown_request(request)
            self._places.release()


class _Handler(BaseHTTPRequestHandler):
    """GET of a known page; one request a connection."""

    timeout = REQUEST_TIMEOUT_S
    pages: dict[str, Page]

    def do_GET(self) -> None:
        page = self.pages.get(self.path.partition("?")[0])
        if page is None:
            names = " ".join(sorted(self.pages))
            status, kind, body = 404, _TEXT, f"pages: {names}\n".encode()
        else:
            status, kind, body = page(self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "onyx"

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not worth a line each."""


def _verdict(check: Check) -> Answer:
    found = check()
    return (200, _TEXT, b"ok\n") if found is True else (503, _TEXT, f"{found or 'no'}\n".encode())


def _metrics(registry: CollectorRegistry, accept: str) -> Answer:
    encode, kind = choose_encoder(accept)
    return 200, kind, encode(registry)
