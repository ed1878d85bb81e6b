"""A peer group as settings describe it: over ZooKeeper and gRPC, with certificates and modules."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack

from onyx.base.seams import SystemClock
from onyx.gateway.gateway import open_gateway
from onyx.gateway.states import States, tokens_of_states
from onyx.ids import GroupId
from onyx.log.zookeeper.dialler import zookeeper_certificates
from onyx.log.zookeeper.group_log import ZooKeeperGroupLog
from onyx.peer.context import new_context
from onyx.peer.endpoint import Endpoint
from onyx.peer.liveness import Watched
from onyx.peer.membership import LogFactory, PeerGroup, TransportFactory
from onyx.reports.codes import CODE
from onyx.settings import Settings
from onyx.telemetry.interface import GroupMetrics
from onyx.telemetry.logs import follow_settings
from onyx.telemetry.recorder import Recorder
from onyx.tls.files import GROUPS, CertificateFiles
from onyx.transport.grpc_tls import check_client_name
from onyx.transport.grpc_transport import GrpcTransport
from onyx.user_code.code_hash import code_hash
from onyx.user_code.resolve import Resolver

JOIN_TIMEOUT_S = 60.0


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
    states: States | None = None,
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
        endpoint = Endpoint(settings, metrics, telemetry)
        undo.callback(endpoint.close)
        announced = {**endpoint.site, **(site or {}), **({CODE: code} if code else {})}
        context = new_context(settings, resolver, endpoint.metrics, announced, recorder=recorder)
        gateway = open_gateway(
            settings,
            context.current_router,
            context.current_router.loop,
            context.clock,
            endpoint.metrics,
            http,
            lambda: context.liveness.beat(Watched.REQUESTS),
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
    tokens = tokens_of_states(settings, SystemClock())
    for_zookeeper = zookeeper_certificates(settings.zookeeper)

    def open_log(group: GroupId, identity: int | None) -> ZooKeeperGroupLog:
        return ZooKeeperGroupLog(settings, group, identity, for_zookeeper)

    def open_transport() -> GrpcTransport:
        return GrpcTransport(
            settings.transport, settings.tenancy_id, certificates, state_tokens=tokens
        )

    return open_log, open_transport
