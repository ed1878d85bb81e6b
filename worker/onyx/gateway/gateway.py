"""The gateway of a process: its server for HTTP, as whoever runs the process sees it.

It serves also while the group of the process connects or joins anew: clients are asked to come
again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from onyx.base.event_loop import EventLoop
from onyx.base.seams import Clock
from onyx.errors import SettingsError
from onyx.serving.listening import OF_WORKERS, listener_at
from onyx.settings import Settings
from onyx.telemetry.interface import GroupMetrics
from onyx.tls.server_files import ServerFiles

if TYPE_CHECKING:
    from onyx.gateway.app import Requests
    from onyx.gateway.states import StateService
    from onyx.serving.server import HttpServer

CALL_TIMEOUT_S = 10.0
VARIABLES = "ONYX_HTTP"


class Gateway:
    """Listens from construction on, and answers from `start` on."""

    def __init__(self, server: HttpServer, loop: EventLoop) -> None:
        self._server = server
        self._loop = loop
        self._started = False
        self.port = server.port
        """Where it listens."""

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return self._server.connections

    def start(self) -> None:
        """Serve clients."""
        self._started = True
        loop = self._loop.running()
        if loop is not None:
            opened = asyncio.run_coroutine_threadsafe(self._server.open(), loop)
            opened.result(CALL_TIMEOUT_S)

    def close(self) -> None:
        """Answer what can be answered soon, and close all connections."""
        loop = self._loop.running()
        if loop is None or not self._started:
            self._server.discard()
            return
        closed = asyncio.run_coroutine_threadsafe(self._server.close(), loop)
        closed.result(CALL_TIMEOUT_S)


def open_gateway(
    settings: Settings,
    requests: Requests,
    loop: EventLoop,
    clock: Clock,
    metrics: GroupMetrics,
    listener: socket.socket | None = None,
    beat: Callable[[], None] = lambda: None,
    states: StateService | None = None,
) -> Gateway:
    """The gateway of a process whose settings ask for one.

    Args:
        states: who answers questions about states, if they are shown.

    Raises:
        SettingsError: the certificates are not good, or uvicorn is not installed.
        Unavailable: the port is taken.
    """
    try:
        from onyx.gateway.app import App
        from onyx.serving.server import HttpServer
    except ImportError as error:
        raise SettingsError(
            f"ONYX_HTTP_PORT needs {error.name}: pip install 'onyx-on-kubernetes[http]'"
        ) from error
    http = settings.http
    files = ServerFiles.named_by(http.cert_file, http.key_file, http.client_ca_file, VARIABLES)
    listener = listener or listener_at(http.bind_host, http.port or 0, OF_WORKERS)
    app = App(settings, requests, clock, metrics, states)
    return Gateway(HttpServer(http, app, listener, files, beat), loop)
