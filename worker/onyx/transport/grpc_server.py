"""The listening side: every group with a smaller id dials here. So do clients, for whom there are
two more services on this port: states (`grpc_state_queries`) and requests (`gateway.service`).

A group may dial before this one has read that they share a job: its call waits for a moment at the
`gate`, so that it need not back off. A link has one stream, so members cannot use up each other's
threads. Both directions of a call block, so gRPC's pool runs the generator that writes, and a
thread of ours reads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc

from onyx.base.seams import Clock
from onyx.errors import SettingsError
from onyx.ids import GroupId
from onyx.requests.tokens import Tokens
from onyx.settings import TransportSettings
from onyx.telemetry.labels import Refusal
from onyx.tls.files import CertificateFiles
from onyx.transport.appends.service import CLIENT_CALLS_MAX, AnswerAppend, RequestService
from onyx.transport.frames.packets import FrameError
from onyx.transport.gate import CALLERS_MAX, CANCELLED, FindLink, Gate
from onyx.transport.grpc_channel import CALLS_MAX, METHOD, STREAMS_MAX, add_port, server_options
from onyx.transport.grpc_state_queries import StateService
from onyx.transport.hello import CallRefused, Stream
from onyx.transport.link import Link
from onyx.transport.ports import free_ports
from onyx.transport.state_queries import AnswerQuery

STOP_TIMEOUT_S = 2.0
logger = logging.getLogger("onyx.transport")
_STATUS = {
    Refusal.BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refusal.GARBAGE: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.GROUP: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.PROTOCOL: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.SILENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    Refusal.TENANCY: grpc.StatusCode.FAILED_PRECONDITION,
}


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


class StreamCall:
    """One call: the reader's thread, and the generator that gRPC's thread runs."""

    def __init__(
        self,
        gate: Gate,
        requests: Iterator[bytes],
        context: grpc.ServicerContext,
        handshake_timeout_s: float,
    ) -> None:
        """`handshake_timeout_s`: longest time between the start of a call and its hello."""
        self._gate = gate
        self._handshake_timeout_s = handshake_timeout_s
        self._requests = requests
        self._context = context
        self._stream = Stream(context.cancel)
        self._link: Link | None = None
        self._lock = threading.Lock()
        self._refused: CallRefused | None = None
        self._problem = ""
        self._decided = threading.Event()

    def responses(self) -> Iterator[bytes]:
        """What this side says, until the call ends. Run by a thread of gRPC."""
        self._context.add_callback(self._ended)
        threading.Thread(target=self._read, name="onyx-stream-reader", daemon=True).start()
        if not self._decided.wait(self._handshake_timeout_s):
            self._refuse(CallRefused(Refusal.SILENT, "no hello came"))
        if self._refused is not None:
            self._context.abort(_STATUS[self._refused.reason], str(self._refused))
        if self._link is None:
            return
        yield self._link.hello()
        yield from self._link.outgoing(self._stream)
        if self._problem:
            self._context.abort(grpc.StatusCode.DATA_LOSS, self._problem)

    def _send_away(self) -> None:
        """Others want to be let in, and this call has said nothing until now."""
        self._refuse(CallRefused(Refusal.SILENT, CANCELLED))
        self._decided.set()

    def _refuse(self, refused: CallRefused) -> None:
        with self._lock:
            if self._refused is not None or self._link is not None:
                return
            self._refused = refused
        self._gate.refuse(self._context.peer(), refused)

    def _ended(self) -> None:
        if self._link is not None:
            self._link.detach(self._stream)
        self._stream.closed.set()
        self._decided.set()

    def _read(self) -> None:
        try:
            self._link = self._gate.admit(self._stream, self._requests, self._send_away)
            self._decided.set()
            for data in self._requests:
                self._link.receive(self._stream, data)
        except (StopIteration, grpc.RpcError):
            self._problem = ""
        except CallRefused as refused:
            self._refuse(refused)
        except FrameError as error:
            self._problem = str(error)
            logger.warning("refused a frame from %s: %s", self._context.peer(), error)
        except Exception as error:
            # grpc raises a bare Exception from the iterator when the call has ended.
            if self._context.is_active():
                logger.exception("a stream from %s broke on a bug", self._context.peer())
                self._problem = f"internal error: {type(error).__name__}"
        finally:
            self._finish()

    def _finish(self) -> None:
        if self._link is not None:
            if self._problem:
                self._link.note_bad_frame()
            # Only mark it: the generator ends by itself and can still say what was wrong.
            self._stream.closed.set()
            self._link.detach(self._stream)
        self._decided.set()
