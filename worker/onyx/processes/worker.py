"""One worker process: a peer group with its metrics endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onyx import __version__
from onyx.errors import OnyxError
from onyx.on_demand import OnDemand
from onyx.peer.membership import PeerGroup
from onyx.peer.opening import open_peer_group
from onyx.processes.child import Listeners
from onyx.processes.memory import keep_freed_memory, tune_collector
from onyx.processes.threads import ThreadWatch
from onyx.recorder import Recorder
from onyx.replica.commands import COMMANDS
from onyx.settings import Settings
from onyx.telemetry.http_server import TelemetryServer
from onyx.telemetry.interface import NULL_GROUP, GroupMetrics
from onyx.telemetry.memory_kills import MemoryKillsCollector
from onyx.telemetry.metrics import PrometheusGroupMetrics

if TYPE_CHECKING:
    from onyx.client.served_states import ServedStates

NONE_GIVEN = Listeners()

_SERVED_STATES: OnDemand[type[ServedStates]] = OnDemand("onyx.client.served_states:ServedStates")


class Worker:
    """Start, let it work, stop.

    Args:
        settings: of the process.
        peers: virtual peers.
        listeners: sockets that are not for this process to open. The supervisor serves
            `metrics_port`, which peers announce, and asks at one of them.
        recorder: that the supervisor holds, if there is one.
    """

    def __init__(
        self,
        settings: Settings,
        peers: int,
        listeners: Listeners = NONE_GIVEN,
        recorder: Recorder | None = None,
    ) -> None:
        self._settings = settings
        self._recorder = recorder
        self._peers = peers
        self._listeners = listeners
        self._group: PeerGroup | None = None
        self._telemetry: TelemetryServer | None = None
        self._threads = ThreadWatch()
        http = settings.http
        shows = http.port is not None and bool(http.state_token_file)
        self._states = _SERVED_STATES.load()(settings) if shows else None

    def start(self) -> None:
        """Join the cluster with the virtual peers, for as long as it takes.

        Raises:
            SettingsError: a setting or a module is wrong.
            Unavailable: the endpoint's port is taken.
        """
        tune_collector()
        keep_freed_memory()
        self._threads.start()
        metrics = self._open_telemetry()
        site = {} if self._telemetry is None else {"metrics": self._announced(self._telemetry.port)}
        self._group = open_peer_group(
            self._settings, metrics, site, self._recorder, self._listeners.http, self._states
        )
        self._group.add_peers(self._peers)

    @property
    def failure(self) -> OnyxError | None:
        """Why it has given up for good; None while it works or tries."""
        failure = None if self._group is None else self._group.failure
        return failure or self._threads.failure

    def stop(self) -> bool:
        """Leave the cluster in an orderly way; False when that took too long."""
        left = self._group is None or self._group.stop()
        if self._states is not None:
            self._states.close()
        if self._telemetry is not None:
            self._telemetry.close()
        self._threads.stop()
        return left

    def _open_telemetry(self) -> GroupMetrics:
        telemetry = self._settings.telemetry
        if telemetry.metrics_port is None:
            return NULL_GROUP
        metrics = PrometheusGroupMetrics(COMMANDS, __version__)
        if self._listeners.telemetry is None:  # else the supervisor has it, once for all processes
            metrics.registry.register(MemoryKillsCollector())
        self._telemetry = TelemetryServer(
            telemetry.metrics_host,
            telemetry.metrics_port,
            metrics.registry,
            healthy=self._healthy,
            ready=self._ready,
            listener=self._listeners.telemetry,
        )
        return metrics

    def _healthy(self) -> bool | str:
        if self.failure is not None:
            return f"ending: {self.failure}"
        return self._group is None or self._group.stalled() or True

    def _ready(self) -> bool | str:
        return "starting" if self._group is None else self._group.obstacle() or True

    def _announced(self, port: int) -> str:
        """Address of the endpoint for other machines."""
        telemetry, transport = self._settings.telemetry, self._settings.transport
        host = telemetry.metrics_advertise_host or transport.advertise_host or transport.bind_host
        return f"{host}:{port if self._listeners.telemetry is None else telemetry.metrics_port}"
