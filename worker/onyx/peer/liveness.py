"""Whether a peer group lives and takes part (`/livez`, `/readyz`), and the HTTP endpoint that says
so beside its metrics.

Live: its threads move. A thread beats in each of its rounds. Only threads that never block for long
are watched: the group's own, the one that the tasks share, and the log's. A thread of its own may
take as long as its blocking task does.

Ready: the group takes part in the cluster with all its peers (`obstacle`).

The group has the endpoint, and not the program around the group: so a group of `onyx worker` and
one that a user's own program starts follow the same settings.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from onyx import __version__
from onyx.base.on_demand import OnDemand
from onyx.base.seams import Clock
from onyx.errors import OnyxError
from onyx.ids import PeerId
from onyx.peer.group import GroupState
from onyx.replica.commands import COMMANDS
from onyx.reports.measures import WorkerMeasures
from onyx.settings import Settings
from onyx.telemetry.interface import NULL_GROUP, GroupMetrics

if TYPE_CHECKING:
    from onyx.telemetry.collectors import MemoryKillsCollector
    from onyx.telemetry.http_server import TelemetryServer
    from onyx.telemetry.metrics import PrometheusGroupMetrics

_SERVER: OnDemand[type[TelemetryServer]] = OnDemand("onyx.telemetry.http_server:TelemetryServer")

_METRICS: OnDemand[type[PrometheusGroupMetrics]] = OnDemand(
    "onyx.telemetry.metrics:PrometheusGroupMetrics"
)

_KILLS: OnDemand[type[MemoryKillsCollector]] = OnDemand(
    "onyx.telemetry.collectors:MemoryKillsCollector"
)


class WatchedThread(StrEnum):
    """Threads that must move."""

    GROUP = "the thread of the peer group"
    TASKS = "the thread that the tasks share"
    LOG = "the thread of the log"
    REQUESTS = "the thread of requests"


class Liveness:
    """The beats of one peer group, over all its incarnations. Any thread may call.

    Args:
        clock: monotonic time.
        stalled_after_s: a thread without a beat for so long is stuck.
    """

    def __init__(self, clock: Clock, stalled_after_s: float) -> None:
        self._clock = clock
        self._stalled_after_s = stalled_after_s
        self._beats: dict[WatchedThread, float] = {}

    def beat(self, thread: WatchedThread) -> None:
        """A thread moves; from now on it has to."""
        self._beats[thread] = self._clock.monotonic_s()

    def forget(self, *threads: WatchedThread) -> None:
        """Some threads have ended, and need not move."""
        for thread in threads:
            self._beats.pop(thread, None)

    def stalled(self) -> str:
        """Which thread has not moved for too long; empty when all move."""
        now_s = self._clock.monotonic_s()
        for thread, beat_s in sorted(self._beats.copy().items()):
            if now_s - beat_s > self._stalled_after_s:
                return f"{thread} has not moved for {now_s - beat_s:.0f} s"
        return ""


def obstacle(
    state: GroupState | None, peers: Collection[PeerId], silent_s: float | None = None
) -> str:
    """Why a group does not take part with all its peers; empty when it does.

    What counts is the lease, not the connection: while it is held a group works through a short
    break, and when it has ended the group is paused though the connection may seem to live.

    Args:
        state: of the present incarnation; None while it connects.
        peers: that it offers.
        silent_s: seconds for which the log has not answered, if the lease has ended; else None.
    """
    if state is None:
        return "connecting to the log"
    if state.leaving:
        return "leaving the cluster"
    if silent_s is not None:
        return f"paused: the log has not answered for {silent_s:.0f} s"
    if not state.joined:
        return "joining the cluster"
    there = set(peers).intersection(state.replica.groups_index.get(state.group, ()))
    if len(there) < len(peers):
        return f"joining the cluster: {len(there)} of {len(peers)} peers take part"
    return ""


# --- the endpoint -------------------------------------------------------------------------------


class GroupHealth(Protocol):
    """The peer group that the endpoint speaks of."""

    @property
    def failure(self) -> OnyxError | None:
        """Why the group has given up for good; None while it works or tries."""
        ...

    def obstacle(self) -> str:
        """Why the group does not take part with all its peers; empty when it does."""
        ...

    def stalled(self) -> str:
        """Which of its threads is stuck; empty when all move."""
        ...

    def inputs(self) -> WorkerMeasures | None:
        """How its inputs get on, in numbers; None while nobody knows."""
        ...


class MetricsEndpoint:
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
        self._group: GroupHealth | None = None
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
            lag=self._lag,
        )
        port = self._server.port if listener is None else telemetry.metrics_port
        transport = settings.transport
        host = telemetry.metrics_advertise_host or transport.advertise_host or transport.bind_host
        self.site["metrics"] = f"{host}:{port}"

    @property
    def port(self) -> int | None:
        """Where the endpoint is; None: nowhere."""
        return None if self._server is None else self._server.port

    def follow(self, group: GroupHealth) -> None:
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

    def _lag(self) -> bytes:
        """A list, because a supervisor joins those of its processes."""
        found = None if self._group is None else self._group.inputs()
        return msgspec.json.encode([] if found is None else [found])
