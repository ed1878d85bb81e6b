"""The listening side: every group with a smaller id dials here.

A group may dial before this one has read that they share a job: its call waits for a moment at the
`gate`, so that it need not back off. A link has one stream, so members cannot use up each other's
threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures

import grpc

from onyx.base.seams import Clock
from onyx.errors import SettingsError
from onyx.ids import GroupId
from onyx.requests.tokens import Tokens
from onyx.settings import TransportSettings
from onyx.tls.files import CertificateFiles
from onyx.transport.gate import CALLERS_MAX, FindLink, Gate
from onyx.transport.gateway.service import CLIENT_CALLS_MAX, AnswerAppend, RequestService
from onyx.transport.grpc_options import CALLS_MAX, METHOD, STREAMS_MAX, server_options
from onyx.transport.grpc_state_queries import StateService
from onyx.transport.grpc_stream import StreamCall
from onyx.transport.grpc_tls import add_port
from onyx.transport.ports import free_ports
from onyx.transport.state_queries import AnswerQuery

STOP_TIMEOUT_S = 2.0


class GrpcServer:
    """Listens from construction on (so that the address is known), answers from `start` on."""

    def __init__(
        self,
        settings: TransportSettings,
        tenancy: str,
        certificates: CertificateFiles | None,
        clock: Clock,
        state_tokens: Tokens,
    ) -> None:
        """Raises SettingsError when the address cannot be listened on, or clients would count as
        workers."""
        client_name, timeout_s = settings.tls_client_name, settings.heartbeat_timeout_s
        self.gate = Gate(tenancy, certificates, clock, timeout_s, client_name)
        self._handshake_timeout_s = 2 * settings.heartbeat_timeout_s
        threads = STREAMS_MAX + CALLERS_MAX + CLIENT_CALLS_MAX
        self._server = grpc.server(
            futures.ThreadPoolExecutor(threads, thread_name_prefix="onyx-stream"),
            options=server_options(settings, tls=certificates is not None),
            maximum_concurrent_rpcs=CALLS_MAX,
        )
        service, _, method = METHOD[1:].partition("/")
        handler = grpc.stream_stream_rpc_method_handler(self._exchange)
        self._state = StateService(self.gate, state_tokens)
        self._requests = RequestService(self.gate)
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(service, {method: handler}),
                self._state.handler,
                self._requests.handler,
            )
        )
        self.port = self._listen(settings, certificates)
        """The one of the ports of the settings that was free."""

    def start(
        self, group: GroupId, find: FindLink, answer: AnswerQuery, append: AnswerAppend
    ) -> None:
        """Accept calls; what comes before is refused."""
        self.gate.open(group, find)
        self._state.start(answer)
        self._requests.start(append)
        self._server.start()

    def stop(self) -> None:
        """End all calls; returns within seconds."""
        self._server.stop(grace=0).wait(STOP_TIMEOUT_S)

    def _listen(self, settings: TransportSettings, certificates: CertificateFiles | None) -> int:
        error: RuntimeError | None = None
        for port in free_ports(settings):
            try:
                return add_port(self._server, f"{settings.bind_host}:{port}", certificates)
            except RuntimeError as refused:  # taken since, or it never was a question of the port
                error = refused
        raise SettingsError(
            f"cannot listen on {settings.bind_host}:{settings.port} (transport.bind_host and "
            f"transport.port): {error or 'all of these ports are taken'}; choose free ports, more "
            "of them, or 0 to be given one"
        ) from error

    def _exchange(
        self, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        self.gate.turn_away_strangers(context)
        yield from StreamCall(self.gate, requests, context, self._handshake_timeout_s).responses()
