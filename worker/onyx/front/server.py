"""Listens for requests over HTTP, from the start of a process to its end.

It serves also while the group of the process connects or joins anew: clients are told to come
again. TLS begins for each connection by itself (`_Entrance`), so each has the certificates of its
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
from collections.abc import Callable
from email.utils import formatdate

from uvicorn.config import Config
from uvicorn.server import ServerState

from onyx.front.app import App
from onyx.front.connection import HEAD_TIMEOUT_S, Connection
from onyx.front.listening import BACKLOG, listener_at
from onyx.settings import HttpSettings
from onyx.telemetry.catalog import HTTP_SERVED
from onyx.telemetry.interface import GroupMetrics
from onyx.telemetry.labels import Served
from onyx.tls.server_files import ServerFiles

VARIABLES = "ONYX_HTTP"
SWEEP_INTERVAL_S = 1.0
CLOSE_PATIENCE_S = 2.0
"""How long requests may take for their answers when the process ends."""


class Server:
    """One listening socket. All but the constructor on the thread of the event loop.

    Args:
        listener: where to listen, if somebody has opened it already.
        beat: is called once a second.

    Raises:
        SettingsError: the certificates are not good.
        Unavailable: the port is taken.
    """

    def __init__(
        self,
        settings: HttpSettings,
        app: App,
        metrics: GroupMetrics,
        listener: socket.socket | None = None,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._beat = beat
        self._metrics = metrics
        names = (settings.cert_file, settings.key_file, settings.client_ca_file)
        self._files = ServerFiles.named_by(*names, VARIABLES)
        self._config = Config(
            app,
            interface="asgi3",
            http=Connection,
            loop="none",
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=settings.idle_timeout_s,  # type: ignore[arg-type]  # to call_later
        )
        self._config.load()
        self._state = ServerState()
        self._most = min(settings.connections_max, _descriptors() // 4)
        self._open: set[Connection] = set()
        """Connections, also those whose TLS has not begun."""
        self._sweeper: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._listener = listener or listener_at(settings.bind_host, settings.port or 0)
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
        connection = Connection(
            self._config, self._state, self._settings, self._open.discard, self._rejected
        )
        self._open.add(connection)
        if self._files is None:
            return connection
        return _Entrance(connection, self._files.context())

    def _make_room(self) -> bool:
        idle = [each for each in self._open if each.idle]
        if not idle:
            return False
        oldest = min(idle, key=lambda each: each.idle_since_s)
        self._open.discard(oldest)
        oldest.cut()
        return True

    def _rejected(self) -> None:
        self._metrics.add(HTTP_SERVED, 1, Served.of(400))

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

    def __init__(self, connection: Connection, context: ssl.SSLContext) -> None:
        self._connection = connection
        self._context = context
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()  # what comes is for TLS
        self._connection.under = transport
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


def _descriptors() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most
