"""The HTTP endpoint of a peer group's process: metrics, and whether the group lives and takes part.

The group has it, and not the program around the group: so a group of `onyx worker` and one that a
user's own program starts follow the same settings.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Protocol

from onyx import __version__
from onyx.base.on_demand import OnDemand
from onyx.errors import OnyxError
from onyx.replica.commands import COMMANDS
from onyx.settings import Settings
from onyx.telemetry.interface import NULL_GROUP, GroupMetrics

if TYPE_CHECKING:
    from onyx.telemetry.http_server import TelemetryServer
    from onyx.telemetry.memory_kills_collector import MemoryKillsCollector
    from onyx.telemetry.metrics import PrometheusGroupMetrics

_SERVER: OnDemand[type[TelemetryServer]] = OnDemand("onyx.telemetry.http_server:TelemetryServer")
_METRICS: OnDemand[type[PrometheusGroupMetrics]] = OnDemand(
    "onyx.telemetry.metrics:PrometheusGroupMetrics"
)
_KILLS: OnDemand[type[MemoryKillsCollector]] = OnDemand(
    "onyx.telemetry.memory_kills_collector:MemoryKillsCollector"
)


class Looked(Protocol):
    """The peer group that the endpoint speaks of."""

    @property
    def failure(self) -> OnyxError | None:
        """Why it has given up for good; None while it works or tries."""
        ...

    def obstacle(self) -> str:
        """Why it does not take part with all its peers; empty when it does."""
        ...

    def stalled(self) -> str:
        """Which of its threads is stuck; empty when all move."""
        ...


class Endpoint:
    """Serves `telemetry.metrics_port` until `close`, if there is one.

    Args:
        settings: of the process.
        metrics: where the group reports to; None: to this endpoint, if there is one.
        listener: a socket that the supervisor holds; it serves the port itself then.

    Raises:
        Unavailable: the port is taken.
    """

    def __init__(
        self, settings: Settings, metrics: GroupMetrics | None, listener: socket.socket | None
    ) -> None:
        self.metrics = metrics or NULL_GROUP
        """Where the group reports to."""
        self.site: dict[str, object] = {}
        """What peers announce of the endpoint."""
        self._group: Looked | None = None
        self._server: TelemetryServer | None = None
        telemetry = settings.telemetry
        if telemetry.metrics_port is None:
            return
        registry = None
        if metrics is None:
            prometheus = _METRICS.load()(COMMANDS, __version__)
            self.metrics, registry = prometheus, prometheus.registry
            if listener is None:  # else the supervisor has it, once for all processes
                registry.register(_KILLS.load()())
        self._server = _SERVER.load()(
            telemetry.metrics_host,
            telemetry.metrics_port,
            registry,
            healthy=self._healthy,
            ready=self._ready,
            listener=listener,
        )
        port = self._server.port if listener is None else telemetry.metrics_port
        transport = settings.transport
        host = telemetry.metrics_advertise_host or transport.advertise_host or transport.bind_host
        self.site["metrics"] = f"{host}:{port}"

    @property
    def port(self) -> int | None:
        """Where the endpoint is; None: nowhere."""
        return None if self._server is None else self._server.port

    def follow(self, group: Looked) -> None:
        """Speak of this group from now on."""
        self._group = group

    def close(self) -> None:
        """Serve no longer."""
        if self._server is not None:
            self._server.close()

    def _healthy(self) -> bool | str:
        if self._group is None:
            return True
        if self._group.failure is not None:
            return f"ending: {self._group.failure}"
        return self._group.stalled() or True

    def _ready(self) -> bool | str:
        return "starting" if self._group is None else self._group.obstacle() or True
