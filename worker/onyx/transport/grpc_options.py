"""gRPC channel options, in one module because gRPC ignores unknown names silently.

Liveness is ours (`heartbeat_*`). gRPC's keepalive is a backstop for a connection whose writer hangs
as well. `http2.ping_timeout_ms` has the effect that `keepalive_timeout_ms` promises: without it, a
dead peer is noticed after a minute. Without `min_ping_interval_without_data_ms` a server ends idle
connections with "too many pings".
"""

from __future__ import annotations

import resource

from onyx.settings import TransportSettings
from onyx.transport.frames.packets import FRAME_OVERHEAD_BYTES

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
