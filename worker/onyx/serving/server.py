"""Listens for requests over HTTP, from the start of a process to its end.

TLS begins for each connection by itself (`_Entrance`), so each has the certificates of its
moment, and one that is still in its handshake counts among the connections.

Rejected: uvicorn's own server. It accepts without a limit while handshakes last, wakes ten times a
second, and has no way to renew certificates.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate
from typing import Protocol

from uvicorn.config import Config
from uvicorn.server import ServerState

from onyx.serving.bodies import BodyLimits
from onyx.serving.connection import HEAD_TIMEOUT_S, AsgiApp, HttpConnection
from onyx.serving.listening import BACKLOG
from onyx.serving.shares import address_of
from onyx.tls.server_files import ServerFiles

SWEEP_INTERVAL_S = 1.0
CLOSE_PATIENCE_S = 2.0
"""How long requests may take for their answers when the process ends."""
TLS_BUFFER_BYTES = 32_768
"""What each connection over TLS holds from its first byte to its end. asyncio's own 256 KiB are
300 MiB for the connections of one port, which any stranger may open."""
SSLProtocol.max_size = TLS_BUFFER_BYTES


class ServerLimits(BodyLimits, Protocol):
    """Settings of a server."""

    @property
    def idle_timeout_s(self) -> float:
        """Time without a request after which a connection is closed."""

    @property
    def connections_max(self) -> int:
        """Connections at once."""


class HttpServer:
    """One listening socket. All but the constructor on the thread of the event loop.

    Args:
        listener: the socket.
        files: certificates; None: HTTP without TLS.
        beat: is called once a second.
    """

    def __init__(
        self,
        limits: ServerLimits,
        app: AsgiApp,
        listener: socket.socket,
        files: ServerFiles | None,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._limits = limits
        self._app = app
        self._beat = beat
        self._files = files
        self._config = Config(
            app,
            interface="asgi3",
            http=HttpConnection,
            loop="none",
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=limits.idle_timeout_s,  # type: ignore[arg-type]  # to call_later
        )
        self._config.load()
        self._state = ServerState()
        self._most = connections_max(limits)
        self._open: set[HttpConnection] = set()
        """Connections, also those whose TLS has not begun."""
        self._sweeper: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._listener = listener
        self.port: int = self._listener.getsockname()[1]

    @property
    def tls(self) -> bool:
        """Whether clients have to speak TLS."""
        return self._files is not None

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._open)

    async def open(self) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accepted, sock=self._listener, backlog=BACKLOG
        )
        self._sweeper = loop.create_task(self._sweep())

    async def close(self) -> None:
        """Accept none any more, answer what can be answered soon, and end all connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                while self._state.tasks:
                    await asyncio.wait(list(self._state.tasks))
        for connection in list(self._open):
            connection.cut()

    def discard(self) -> None:
        """Close the socket, where nothing has been accepted."""
        self._listener.close()

    # --- connections ------------------------------------------------------------------------------

    def _accepted(self) -> asyncio.Protocol:
        """Who takes a connection that has just come."""
        if len(self._open) >= self._most and not self._make_room():
            return _Closed()
        connection = HttpConnection(
            self._config, self._state, self._limits, self._app, self._open.discard
        )
        self._open.add(connection)
        if self._files is None:
            return connection
        return _Entrance(connection, self._files.context())

    def _make_room(self) -> bool:
        idle = [each for each in self._open if each.idle]
        if not idle:
            return False
        by_address = Counter(each.address for each in self._open)
        gives = max(idle, key=lambda each: (by_address[each.address], -each.idle_since_s))
        self._open.discard(gives)
        gives.cut()
        return True

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._beat()
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            now_s = loop.time()
            for connection in [each for each in self._open if each.overdue(now_s)]:
                connection.cut()
            await asyncio.sleep(SWEEP_INTERVAL_S)


class _Closed(asyncio.Protocol):
    """Takes a connection for which there is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class _Entrance(asyncio.Protocol):
    """Takes a connection until TLS has begun; then the connection itself does."""

    def __init__(self, connection: HttpConnection, context: ssl.SSLContext) -> None:
        self._connection = connection
        self._context = context
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()  # what comes is for TLS
        self._connection.under = transport
        self._connection.address = address_of(transport.get_extra_info("peername"))
        self._task = asyncio.get_running_loop().create_task(self._begin(transport))

    async def _begin(self, transport: asyncio.Transport) -> None:
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                transport,
                self._connection,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HEAD_TIMEOUT_S,
                ssl_shutdown_timeout=HEAD_TIMEOUT_S,
            )
        except OSError:  # of ssl as well
            encrypted = None
        if encrypted is None or transport.is_closing():  # it ends without an error, too
            transport.abort()
            self._connection.never_made()
        elif not self._connection.lost:
            self._connection.connection_made(encrypted)


def connections_max(limits: ServerLimits) -> int:
    """Connections at once, for which the process needs a descriptor each."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(limits.connections_max, descriptors // 4)
