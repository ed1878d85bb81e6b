"""One worker process: a peer group with its metrics endpoint."""

from __future__ import annotations

import gc

from onyx import __version__, api
from onyx.peer.peer_group import PeerGroup
from onyx.replica.commands import NAMES
from onyx.settings import Settings
from onyx.telemetry.interface import NULL_GROUP, GroupMetrics
from onyx.telemetry.metrics import PrometheusGroupMetrics
from onyx.telemetry.server import TelemetryServer

COLLECTOR_THRESHOLDS = (50_000, 20, 100)
"""Of the garbage collector: at Python's own 700 each batch is walked several times while it is
young, though segments are trees and freed by reference counts (about a tenth of all CPU)."""


def tune_collector() -> None:
    """What exists now lives as long as the process; segments need few collections."""
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


class Worker:
    """Start, let it work, stop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._group: PeerGroup | None = None
        self._telemetry: TelemetryServer | None = None
        self._last_passes = -1

    def start(self, peers: int) -> None:
        """Join the cluster with so many virtual peers; returns when it has joined."""
        tune_collector()
        metrics = self._open_telemetry()
        site = {}
        if self._telemetry is not None:
            site["metrics"] = f"{self._settings.telemetry.metrics_host}:{self._telemetry.port}"
        self._group = api.start_peer_group(self._settings, metrics, site)
        api.start_peers(peers, self._group)

    @property
    def ended(self) -> bool:
        """Whether the group has given up for good."""
        return self._group is not None and self._group.failure is not None

    def stop(self) -> None:
        """Leave the cluster in an orderly way."""
        if self._group is not None:
            api.shutdown_peer_group(self._group)
        if self._telemetry is not None:
            self._telemetry.close()

    def _open_telemetry(self) -> GroupMetrics:
        telemetry = self._settings.telemetry
        if telemetry.metrics_port is None:
            return NULL_GROUP
        metrics = PrometheusGroupMetrics(NAMES, __version__)
        self._telemetry = TelemetryServer(
            telemetry.metrics_host,
            telemetry.metrics_port,
            metrics.registry,
            healthy=self._healthy,
            ready=lambda: self._group is not None and self._group.joined,
        )
        return metrics

    def _healthy(self) -> bool:
        """The executor has moved since the last probe, or the group is between incarnations."""
        if self._group is None or not self._group.joined:
            return True
        passes = self._group.passes
        moved, self._last_passes = passes != self._last_passes, passes
        return moved
