"""An HTTP endpoint in this process, on real sockets, that answers as a test says."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa

HANG_S_MAX = 60.0
DRIP_S = 0.02


@dataclass(frozen=True)
class Reply:
    """What becomes of a request: `answer` it, or one of the things that servers do instead."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"thank you"
    how: str = "answer"
    """`answer`; `close` without an answer; `reset` in the middle; `hang`; `drip` the answer byte by
    byte; `garbage`; `half` of the answer."""
    taken: bool | None = None
    """Whether the request is processed; without it, if it is answered with 2xx."""


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    """By lower-case names."""
    body: bytes

    @property
    def key(self) -> str:
        return self.headers.get("idempotency-key", "")

    def rows(self) -> list[Any]:
        kind = self.headers["content-type"]
        if kind.startswith("application/vnd.apache.arrow"):
            rows: list[Any] = pa.ipc.open_stream(self.body).read_all().to_pylist()
            return rows
        if kind == "application/x-ndjson":
            return [json.loads(line) for line in self.body.splitlines()]
        found = json.loads(self.body)
        return found if isinstance(found, list) else [found]


class HttpEndpoint:
    """Takes each key once."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[Received] = []
        self.taken: list[Received] = []
        """Those that were processed."""
        self.script: deque[Reply] = deque()
        """Replies to the requests that come next."""
        self.rule: Callable[[Received], Reply | None] = lambda request: None
        self.in_flight_max = 0
        self.connections = 0
        self.tls = tls
        self._keys: set[str] = set()
        self._lock = threading.Lock()
        self._in_flight = 0
        self._sockets: set[socket.socket] = set()
        self._released = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://localhost:{self.port}/orders"

    def start(self) -> None:
        """Listen, on the port of the last time."""
        self._released.clear()
        server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        server.daemon_threads = True
        self._server, self.port = server, server.server_port
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Vanish: connections are reset."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        self._released.set()
        for each in list(self._sockets):
            reset(each)

    def rows(self) -> list[Any]:
        """What was processed."""
        with self._lock:
            return [row for each in self.taken for row in each.rows()]

    def numbers(self) -> Counter[int]:
        return Counter(row["n"] for row in self.rows())

    def _reply(self, request: Received) -> Reply:
        with self._lock:
            self.received.append(request)
            reply = self.rule(request)
            if reply is None:
                reply = self.script.popleft() if self.script else Reply()
            is_taken = 200 <= reply.status < 300 if reply.taken is None else reply.taken
            if is_taken and request.key not in self._keys:
                self.taken.append(request)
                if request.key:
                    self._keys.add(request.key)
            return reply

    def _handler(endpoint) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                if endpoint.tls is not None:
                    self.request = endpoint.tls.wrap_socket(self.request, server_side=True)
                endpoint._sockets.add(self.request)
                endpoint.connections += 1
                super().setup()

            def finish(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    super().finish()
                endpoint._sockets.discard(self.request)
                self.request.close()

            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    super().handle()

            def do_POST(self) -> None:
                endpoint._in_flight += 1
                endpoint.in_flight_max = max(endpoint.in_flight_max, endpoint._in_flight)
                try:
                    self._answer()
                finally:
                    endpoint._in_flight -= 1

            do_PUT = do_PATCH = do_GET = do_POST

            def _answer(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(size)
                if len(body) < size:  # the connection has ended: nothing is taken of a part
                    self.close_connection = True
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                reply = endpoint._reply(Received(self.command, self.path, headers, body))
                if reply.how == "hang":
                    endpoint._released.wait(HANG_S_MAX)
                if reply.how in ("hang", "close"):
                    self.close_connection = True
                    return
                if reply.how == "reset":
                    reset(self.connection)
                    self.close_connection = True
                    return
                self._write(reply)

            def _write(self, reply: Reply) -> None:
                if reply.how == "garbage":
                    self.wfile.write(b"\x00\xffnobody speaks this\r\n\r\n")
                    self.close_connection = True
                    return
                lines = [f"HTTP/1.1 {reply.status} Words"]
                lines += [f"{name}: {value}" for name, value in reply.headers.items()]
                lines += [f"Content-Length: {len(reply.body)}", "", ""]
                data = "\r\n".join(lines).encode() + reply.body
                if reply.how == "half":
                    self.wfile.write(data[:-1])
                    self.close_connection = True
                elif reply.how == "drip":
                    for byte in data:
                        time.sleep(DRIP_S)
                        self.wfile.write(bytes([byte]))
                else:
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def reset(connection: socket.socket) -> None:
    """End a connection so that the other side gets an error."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
