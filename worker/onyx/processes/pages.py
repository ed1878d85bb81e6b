"""The metrics endpoint of several worker processes, which their supervisor serves.

At a metrics port that was chosen the supervisor answers for several (`telemetry.processes`); each
listens on a socket that the supervisor opens and keeps, so that it is where it was after a restart.
A single one takes the port itself. At port 0, on a laptop, each takes a port of its own and
announces it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onyx.base.on_demand import OnDemand
from onyx.settings import TelemetrySettings

if TYPE_CHECKING:
    from onyx.telemetry.collectors import MemoryKillsCollector
    from onyx.telemetry.http_server import TelemetryServer
    from onyx.telemetry.processes import ProcessPages

_SERVER: OnDemand[type[TelemetryServer]] = OnDemand("onyx.telemetry.http_server:TelemetryServer")
_PAGES: OnDemand[type[ProcessPages]] = OnDemand("onyx.telemetry.processes:ProcessPages")
_KILLS: OnDemand[type[MemoryKillsCollector]] = OnDemand(
    "onyx.telemetry.collectors:MemoryKillsCollector"
)


class Pages:
    """The endpoint of so many processes; `is_running` says whether one of them runs."""

    def __init__(
        self, settings: TelemetrySettings, processes: int, is_running: Callable[[int], bool]
    ) -> None:
        self.listeners: Sequence[socket.socket | None] = [None] * processes
        """Where each process listens; None: it chooses."""
        self._settings = settings
        self._is_running = is_running
        self._server: TelemetryServer | None = None

    def open(self) -> None:
        """Serve, if there is something to serve.

        Raises:
            Unavailable: the port is taken.
        """
        settings = self._settings
        if not settings.metrics_port or len(self.listeners) < 2:
            return
        opened = [socket.create_server(("127.0.0.1", 0)) for _ in self.listeners]
        ports = [each.getsockname()[1] for each in opened]
        pages = _PAGES.load()(ports, self._is_running, _KILLS.load()())
        self._server = _SERVER.load()(
            settings.metrics_host,
            settings.metrics_port,
            pages.registry,
            pages.healthy,
            pages.ready,
        )
        self.listeners = opened

    def close(self) -> None:
        """Close the endpoint."""
        if self._server is not None:
            self._server.close()
