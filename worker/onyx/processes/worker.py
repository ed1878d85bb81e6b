"""One worker process: a peer group and its virtual peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onyx.base.on_demand import OnDemand
from onyx.errors import OnyxError
from onyx.peer.membership import PeerGroup, open_peer_group
from onyx.processes.child import Listeners
from onyx.processes.memory import keep_freed_memory, tune_collector
from onyx.processes.threads import ThreadWatch
from onyx.settings import Settings
from onyx.telemetry.recorder import Recorder

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
        self._threads = ThreadWatch()
        shows = settings.http.port is not None and bool(settings.state.token_file)
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
        self._group = open_peer_group(
            self._settings,
            recorder=self._recorder,
            http=self._listeners.http,
            telemetry=self._listeners.telemetry,
            states=self._states,
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
        self._threads.stop()
        return left
