"""How gRPC's channels and servers are made: mutual TLS between groups, and options, in one module
because gRPC ignores unknown names silently.

Groups are dialled by the address of a pod, which no certificate carries. So both ends ask for one
DNS name that is the same for all workers of a cluster (`tls.server_name`); being signed by the
authority and carrying the name is what makes a process a member. gRPC checks the name of the group
that is dialled; that of the group that dials is checked here. A client's certificate is of the same
authority, and carries the name of clients (`transport.tls_client_name`) and not that of workers
([why](../../../docs/decisions/0124-clients-are-known-by-a-name.md)).

Liveness is ours (`heartbeat_*`). gRPC's keepalive is a backstop for a connection whose writer hangs
as well. `http2.ping_timeout_ms` has the effect that `keepalive_timeout_ms` promises: without it, a
dead peer is noticed after a minute. Without `min_ping_interval_without_data_ms` a server ends idle
connections with "too many pings".
"""

from __future__ import annotations

import resource
from collections.abc import Mapping, Sequence

import grpc

from onyx.errors import SettingsError
from onyx.settings import FRAME_OVERHEAD_BYTES, TransportSettings
from onyx.tls.diagnosis import diagnose
from onyx.tls.files import GROUPS, CertificateFiles, Pem

METHOD = "/onyx.wire.v1.Streams/Exchange"
STREAMS_MAX = 256
"""Streams that a server carries at once, one for each group that dials."""
CALLS_MAX = 1_024
"""Calls at once, with those that are about to be refused; more are refused by gRPC itself."""
CALLS_PER_CONNECTION_MAX = 32
CONNECTIONS_MAX = 1_024
CONNECTION_IDLE_MS = 10_000
"""How long a connection without a call stays: those of members have their stream."""
HANDSHAKE_MS = 5_000
"""How long a connection may take to speak HTTP/2, TLS included."""
RENEWAL_GRACE_MS = 1_000
"""How long a connection that is too old goes on, so that what is under way is acknowledged."""
Options = list[tuple[str, int | str]]


def open_channel(address: str, options: Options, files: CertificateFiles | None) -> grpc.Channel:
    """A channel that connects with the certificates of this moment; plain without files."""
    if files is None:
        return grpc.insecure_channel(address, options=options)
    pem = files.current().pem
    credentials = grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate)
    name = files.settings.server_name
    named = [("grpc.ssl_target_name_override", name)] if name else []
    return grpc.secure_channel(address, credentials, options=[*options, *named])


def add_port(server: grpc.Server, where: str, files: CertificateFiles | None) -> int:
    """Listen; with files, each connection is shaken hands with by the certificates of its moment.

    Raises:
        RuntimeError: the address cannot be listened on.
    """
    if files is None:
        return int(server.add_insecure_port(where))
    used = files.current().pem

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        pem = files.current().pem
        if pem == used:
            return None
        used = pem
        return _configuration(pem)

    credentials = grpc.dynamic_ssl_server_credentials(
        _configuration(used), renewed, require_client_authentication=True
    )
    return int(server.add_secure_port(where, credentials))


def stranger(context: grpc.ServicerContext, files: CertificateFiles | None) -> str | None:
    """Why the certificate of whoever has called is not that of a worker, or None."""
    if files is None or not files.settings.server_name:
        return None
    names = _names(context)
    if carries(names, files.settings.server_name):
        return None
    return (
        f"its certificate carries {', '.join(names) or 'no name'} and not "
        f"{files.settings.server_name}, which every worker's must ({GROUPS}_SERVER_NAME)"
    )


def is_client(context: grpc.ServicerContext, client_name: str) -> bool:
    """Whether the certificate of whoever has called is that of a client."""
    return bool(client_name) and carries(_names(context), client_name)


def check_client_name(client_name: str, files: CertificateFiles | None) -> None:
    """Raises SettingsError when certificates with this name would be those of workers too."""
    workers = "" if files is None else files.settings.server_name
    if client_name and (not workers or carries([client_name], workers)):
        raise SettingsError(
            f"ONYX_TRANSPORT_TLS_CLIENT_NAME={client_name} needs certificates, and another name of "
            f"workers: set {GROUPS}_* and {GROUPS}_SERVER_NAME"
        )


def _names(context: grpc.ServicerContext) -> list[str]:
    auth: Mapping[str, Sequence[bytes]] = context.auth_context()
    return [each.decode(errors="replace") for each in auth.get("x509_subject_alternative_name", ())]


def carries(names: Sequence[str], wanted: str) -> bool:
    """Whether a certificate with these names is one for a DNS name; `*` stands for its first part,
    as for a server's certificate."""
    lowered = [each.lower() for each in names]
    _, _, parent = wanted.lower().partition(".")
    return wanted.lower() in lowered or (bool(parent) and f"*.{parent}" in lowered)


def why_not(address: str, files: CertificateFiles | None) -> str | None:
    """What is wrong with TLS between this group and the one at an address, if anything is."""
    host, _, port = address.rpartition(":")
    return diagnose(host.strip("[]"), int(port), files, GROUPS, http2=True)


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.ca)


def _both(settings: TransportSettings) -> Options:
    # A little above our own limit, so that a frame that is too large is refused by us and named.
    bytes_max = settings.frame_bytes_max + FRAME_OVERHEAD_BYTES
    return [
        ("grpc.max_send_message_length", bytes_max),
        ("grpc.max_receive_message_length", bytes_max),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.ping_timeout_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def connections_max() -> int:
    """Connections at once: no more than leaves descriptors for everything else."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(CONNECTIONS_MAX, max(1, descriptors // 2))


def channel_options(settings: TransportSettings) -> Options:
    """Options of the dialling side."""
    return [
        *_both(settings),
        # Each dial connects anew at once: sharing connections would share their long back-off.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
    ]


def server_options(settings: TransportSettings, tls: bool) -> Options:
    """Options of the listening side."""
    age: Options = [
        ("grpc.max_connection_age_ms", round(1_000 * settings.tls_connection_age_max_s)),
        ("grpc.max_connection_age_grace_ms", RENEWAL_GRACE_MS),
    ]
    return [
        *_both(settings),
        *(age if tls else ()),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.max_connection_idle_ms", CONNECTION_IDLE_MS),
        ("grpc.max_concurrent_streams", CALLS_PER_CONNECTION_MAX),
        ("grpc.max_allowed_incoming_connections", connections_max()),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        # Two processes given the same port must not share it in silence.
        ("grpc.so_reuseport", 0),
    ]
