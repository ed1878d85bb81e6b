"""A peer group: the membership of one worker process, over all its incarnations; and how it is
opened as settings describe it, over ZooKeeper and gRPC, with certificates and modules.

It runs one incarnation after another, on a thread of its own. A lost session or an eviction ends an
incarnation; the next one has new ids, so nothing that the dead one wrote counts for it. A failure
to connect is logged, and tried again with back-off, without end. Two things end the group: a log
that is not the one that the last incarnation read (the data of ZooKeeper was wiped), and a thread
of the group that has crashed. `failure` then has the reason, and the process ends.

A virtual peer has a new id in each incarnation and after each restart. `add_peers` returns its
first id, which stays valid for `remove_peer`.
"""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from onyx.base.on_demand import OnDemand
from onyx.base.seams import SystemClock
from onyx.errors import InvariantViolated, OnyxError, Unavailable, UserError, describe
from onyx.ids import GroupId, PeerId
from onyx.log.opening import LogFactory, group_logs
from onyx.peer.context import ProcessContext, new_context
from onyx.peer.group import GroupLeft, GroupState
from onyx.peer.incarnation import Incarnation
from onyx.peer.liveness import MetricsEndpoint, WatchedThread, obstacle
from onyx.replica.job_events import WORKER_ENDED, local_event
from onyx.reports.codes import CODE
from onyx.reports.measures import WorkerMeasures
from onyx.settings import Settings
from onyx.telemetry.interface import GroupMetrics
from onyx.telemetry.logs import follow_settings, happened, locate
from onyx.telemetry.recorder import Recorder
from onyx.tls.files import GROUPS, CertificateFiles
from onyx.transport.frames.compression import check_compression
from onyx.transport.grpc_channel import check_client_name
from onyx.transport.grpc_transport import GrpcTransport
from onyx.transport.interface import Transport
from onyx.transport.state_queries import tokens_of_states
from onyx.user_code.code_hash import code_hash
from onyx.user_code.resolve import Resolver

if TYPE_CHECKING:
    from onyx.gateway.gateway import Gateway
    from onyx.gateway.states import StateService

logger = logging.getLogger("onyx.peer")

RESTART_BACK_OFF_S = 0.2

RESTART_BACK_OFF_MAX_S = 5.0

_JOIN_POLL_S = 0.01

JOIN_TIMEOUT_S = 60.0

_OPEN_GATEWAY: OnDemand[Callable[..., Gateway]]
_OPEN_GATEWAY = OnDemand("onyx.gateway.gateway:open_gateway")

TransportFactory = Callable[[], Transport]


def start_peer_group(
    settings: Settings,
    metrics: GroupMetrics | None = None,
    site: Mapping[str, object] | None = None,
    recorder: Recorder | None = None,
) -> PeerGroup:
    """Make this process a member of the cluster; returns when it has joined. The arguments are
    those of `open_peer_group`.

    Raises:
        SettingsError: as `open_peer_group`.
        Unavailable: it could not join within a minute.
    """
    group = open_peer_group(settings, metrics, site, recorder)
    try:
        group.await_joined(JOIN_TIMEOUT_S)
    except BaseException:
        group.stop()
        raise
    return group


def open_peer_group(
    settings: Settings,
    metrics: GroupMetrics | None = None,
    site: Mapping[str, object] | None = None,
    recorder: Recorder | None = None,
    http: socket.socket | None = None,
    telemetry: socket.socket | None = None,
    states: StateService | None = None,
) -> PeerGroup:
    """Start a peer group and do not wait: it tries to join for as long as it takes.

    Args:
        settings: of the process; those of its log (`telemetry.log_file` and others) are followed
            beside what the process does with its log, those of the supervisor have no effect.
        metrics: receives the metrics of the group, in place of the endpoint at
            `telemetry.metrics_port`.
        site: announced with every peer beside its address and the hash of its code.
        recorder: the flight recorder, if a supervisor reads it when this process dies.
        http: where requests over HTTP are taken, if somebody listens there already.
        telemetry: where the endpoint listens, if a supervisor serves its port.
        states: who answers questions about states over HTTP; None: they are not shown.

    Raises:
        SettingsError: a setting or a module in `modules` is wrong.
        Unavailable: the port for requests over HTTP, or of the endpoint, is taken.
    """
    follow_settings(settings.telemetry)
    open_log, open_transport = _connections(settings)
    resolver = Resolver(settings.modules)
    code = code_hash(settings.modules)
    with ExitStack() as undo:
        endpoint = MetricsEndpoint(settings, metrics, telemetry)
        undo.callback(endpoint.close)
        announced = {**endpoint.site, **(site or {}), **({CODE: code} if code else {})}
        context = new_context(settings, resolver, endpoint.metrics, announced, recorder=recorder)
        gateway = None
        if settings.http.port is not None:
            gateway = _OPEN_GATEWAY.load()(
                settings,
                context.current_router,
                context.current_router.loop,
                context.clock,
                endpoint.metrics,
                http,
                lambda: context.liveness.beat(WatchedThread.REQUESTS),
                states,
            )
        undo.pop_all()
    group = PeerGroup(context, open_log, open_transport, gateway, endpoint)
    group.start()
    return group


def _connections(settings: Settings) -> tuple[LogFactory, TransportFactory]:
    """What opens the log and the transport of an incarnation."""
    certificates = CertificateFiles.named_by(settings.tls, GROUPS, serves=True)
    # Each transport checks it as well; here the process ends before it has begun.
    check_client_name(settings.transport.tls_client_name, certificates)
    check_compression(settings.transport.compression)
    tokens = tokens_of_states(settings, SystemClock())

    def open_transport() -> GrpcTransport:
        return GrpcTransport(
            settings.transport, settings.tenancy_id, certificates, state_tokens=tokens
        )

    return group_logs(settings), open_transport


class PeerGroup:
    """Start with `start`, offer virtual peers with `add_peers`, end with `stop`."""

    def __init__(
        self,
        context: ProcessContext,
        open_log: LogFactory,
        open_transport: TransportFactory,
        gateway: Gateway | None = None,
        endpoint: MetricsEndpoint | None = None,
    ) -> None:
        """
        Args:
            context: the process.
            open_log: opens the log for one incarnation.
            open_transport: opens the transport for one incarnation.
            gateway: takes requests over HTTP as long as the group lives, which closes it.
            endpoint: says how the group is until it is stopped, which closes it.
        """
        self._endpoint = endpoint
        self._gateway = gateway
        self._context = context
        self._open_log = open_log
        self._open_transport = open_transport
        self._liveness = context.liveness
        self._lock = threading.Lock()
        self._peers: dict[PeerId, PeerId] = {}
        """The ids that virtual peers were offered under, and those that they have now."""
        self._log_identity: int | None = None
        self._incarnation: Incarnation | None = None
        self._stopping = threading.Event()
        self._failure: OnyxError | None = None
        self._thread = threading.Thread(target=self._run, name="onyx-peer-group", daemon=True)

    def start(self) -> None:
        """Join the cluster, on a thread of its own."""
        if self._endpoint is not None:
            self._endpoint.follow(self)
        if self._gateway is not None:
            self._gateway.start()
        self._thread.start()

    def add_peers(self, count: int) -> list[PeerId]:
        """Offer `count` more virtual peers; what is returned stays good for `remove_peer`."""
        peers = [self._new_peer() for _ in range(count)]
        with self._lock:
            self._peers.update((peer, peer) for peer in peers)
            if self._incarnation is not None:
                self._incarnation.add_peers(peers)
        return peers

    def remove_peer(self, peer: PeerId) -> None:
        """Take a virtual peer back, named by its first id or the one that it has now; its task
        goes to another."""
        with self._lock:
            first = peer if peer in self._peers else self._first_id(peer)
            if first is not None:
                current = self._peers.pop(first)
                if self._incarnation is not None:
                    self._incarnation.remove_peer(current)

    def stop(self, timeout_s: float | None = None) -> bool:
        """Leave the cluster in an orderly way; False when that took longer than `timeout_s` (the
        setting `leave_timeout_s`, if None)."""
        try:
            return self._leave(timeout_s)
        finally:
            if self._endpoint is not None:
                self._endpoint.close()

    def _leave(self, timeout_s: float | None) -> bool:
        self._stopping.set()
        with self._lock:
            if self._incarnation is None:
                # It connects or waits, and is no member: there is nothing to deregister.
                return True
            self._incarnation.leave()
        if self._thread.is_alive():
            self._thread.join(
                self._context.settings.leave_timeout_s if timeout_s is None else timeout_s
            )
        return not self._thread.is_alive()

    @property
    def joined(self) -> bool:
        """Whether the group is a member now."""
        state = self._state
        return state is not None and state.joined

    def await_joined(self, timeout_s: float) -> None:
        """Wait until the group is a member.

        Raises:
            OnyxError: why the group gave up.
            Unavailable: it could not join in time, and has been stopped.
        """
        waited = threading.Event()
        for _ in range(int(timeout_s / _JOIN_POLL_S)):
            if self.joined:
                return
            if self.failure is not None:
                raise self.failure
            waited.wait(_JOIN_POLL_S)
        self.stop()
        settings = self._context.settings
        raise Unavailable(
            f"this peer group could not join tenancy {settings.tenancy_id!r} at "
            f"{settings.log_place} within {timeout_s:.0f} s"
        )

    def obstacle(self) -> str:
        """Why the group does not take part with all its peers (readiness); empty when it does."""
        with self._lock:
            incarnation, peers = self._incarnation, tuple(self._peers.values())
        if self._stopping.is_set():
            return "leaving the cluster"
        if incarnation is None:
            return obstacle(None, peers)
        return obstacle(incarnation.state, peers, incarnation.silent_s())

    def stalled(self) -> str:
        """Which of the group's threads is stuck (liveness); empty when all move."""
        return self._liveness.stalled()

    def inputs(self) -> WorkerMeasures | None:
        """How the inputs of the group get on, in numbers; None between two incarnations, and while
        its tasks change too fast."""
        incarnation = self._incarnation
        with suppress(Unavailable):
            return None if incarnation is None else incarnation.inputs()
        return None

    @property
    def http_port(self) -> int | None:
        """Where requests over HTTP are taken; None: nowhere."""
        return None if self._gateway is None else self._gateway.port

    @property
    def metrics_port(self) -> int | None:
        """Where `/metrics`, `/livez` and `/readyz` are; None: nowhere."""
        return None if self._endpoint is None else self._endpoint.port

    @property
    def _state(self) -> GroupState | None:
        incarnation = self._incarnation
        return incarnation.state if incarnation is not None else None

    @property
    def group(self) -> GroupId | None:
        """Id of the present incarnation; None between two of them."""
        incarnation = self._incarnation
        return incarnation.group if incarnation is not None else None

    @property
    def failure(self) -> OnyxError | None:
        """Why the group gave up for good; None while it works or tries."""
        return self._failure

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the group has ended; True when it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _first_id(self, current: PeerId) -> PeerId | None:
        return next((first for first, now in self._peers.items() if now == current), None)

    def _new_peer(self) -> PeerId:
        return PeerId(str(uuid.UUID(int=self._context.randomness.getrandbits(128), version=4)))

    def _run(self) -> None:
        try:
            self._live()
        finally:
            self._liveness.forget(WatchedThread.REQUESTS)
            if self._gateway is not None:
                self._gateway.close()
            self._context.current_router.loop.close()

    def _live(self) -> None:
        back_off_s = RESTART_BACK_OFF_S
        while not self._stopping.is_set():
            self._liveness.forget(WatchedThread.GROUP)  # connecting has time limits of its own
            try:
                if self._live_once():
                    return
                back_off_s = RESTART_BACK_OFF_S
            except UserError as error:
                if self._log_identity is not None:  # the first time, the caller reports it
                    logger.error("this peer group cannot go on: %s", error)
                self._failure = error
                return
            except Unavailable as error:
                logger.warning("%s; trying again in %.1f s", error, back_off_s)
                back_off_s = min(back_off_s * 2, RESTART_BACK_OFF_MAX_S)
            except OnyxError as error:
                self._failure = error
                logger.exception("the peer group cannot go on")
                return
            except BaseException as error:
                self._failure = InvariantViolated(describe(error))
                logger.exception("a bug in Onyx: please report it")
                return
            self._stopping.wait(back_off_s)

    def _live_once(self) -> bool:
        """One incarnation, from joining to its end; True when it has left for good."""
        group = GroupId(str(self._new_peer()))
        locate({"group": group})
        log = self._open_log(group, self._log_identity)
        incarnation = Incarnation(self._context, log, self._open_transport(), self._replace_peer)
        with self._lock:
            # Together under the lock: `stop` either finds the incarnation and lets it leave, or was
            # called before, and then this one never joins.
            stopping = self._stopping.is_set()
            self._incarnation = None if stopping else incarnation
            peers = tuple(self._peers.values())
        if stopping:
            log.close()
            return True
        try:
            end = incarnation.run(peers)
        finally:
            with self._lock:
                self._incarnation = None
                # Also when it ended with an error: the next one refuses a log made anew.
                self._log_identity = log.identity
                self._peers = {first: self._new_peer() for first in self._peers}
        if isinstance(end, GroupLeft):
            return True
        happened(local_event(WORKER_ENDED, worker=log.group, why=end.reason))
        return False

    def _replace_peer(self, peer: PeerId) -> None:
        """A new peer in the place of one that a task of the current incarnation gives up."""
        with self._lock:
            first = self._first_id(peer)
            if first is None or self._incarnation is None:
                return
            self._peers[first] = self._new_peer()
            self._incarnation.remove_peer(peer)
            self._incarnation.add_peers([self._peers[first]])
