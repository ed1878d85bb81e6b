"""The listening side: every group with a smaller id dials here.

Each call has two threads: gRPC's pool runs the generator that writes, and one of ours reads, since
both directions block. A group may dial before this one has read that they share a job: its call
waits for a moment, so that it need not back off.

Anybody who reaches the port can call. So a call gets nothing that members need before its hello has
been checked: until then it is in `pending_hellos`, and calls that wait for a shared job are bounded
too. A link has one stream, so members cannot use up each other's threads either.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc

from onyx.errors import SettingsError
from onyx.ids import GroupId
from onyx.seams import Clock
from onyx.settings import TransportSettings
from onyx.telemetry.catalog import Refusal
from onyx.tls.files import CertificateFiles
from onyx.transport.frames.packets import FrameError
from onyx.transport.grpc_options import CALLS_MAX, METHOD, STREAMS_MAX, server_options
from onyx.transport.grpc_state_queries import StateService
from onyx.transport.grpc_tls import add_port, stranger
from onyx.transport.hello import Refused, read_hello
from onyx.transport.link import Link, Stream
from onyx.transport.pending_hellos import CANCELLED, PENDING_MAX, PendingHellos
from onyx.transport.state_queries import AnswerQuery

logger = logging.getLogger("onyx.transport")

STOP_TIMEOUT_S = 2.0
EXPECTED_MAX = 32
"""Groups that wait until this one has learned that they share a job."""
COMPLAINT_INTERVAL_S = 60.0
"""Refusals of one kind are logged once in so long; all are counted."""

FindLink = Callable[[GroupId, float], Link | None]
"""The link with a group; waits up to so many seconds for there to be one."""


class Server:
    """Listens from construction on (so that the address is known), answers from `start` on."""

    def __init__(
        self,
        settings: TransportSettings,
        tenancy: str,
        certificates: CertificateFiles | None,
        clock: Clock,
    ) -> None:
        """Raises SettingsError when the address cannot be listened on."""
        self._settings = settings
        self._certificates = certificates
        self._tenancy = tenancy
        self._group = GroupId("")
        self._find: FindLink = lambda group, timeout_s: None
        self._clock = clock
        self._complaints: dict[Refusal, float] = {}
        self._expected = threading.BoundedSemaphore(EXPECTED_MAX)
        self.pending = PendingHellos()
        threads = STREAMS_MAX + PENDING_MAX + EXPECTED_MAX
        self._server = grpc.server(
            futures.ThreadPoolExecutor(threads, thread_name_prefix="onyx-stream"),
            options=server_options(settings, tls=certificates is not None),
            maximum_concurrent_rpcs=CALLS_MAX,
        )
        service, _, method = METHOD[1:].partition("/")
        handler = grpc.stream_stream_rpc_method_handler(self._exchange)
        self._state = StateService(tenancy, certificates, self.pending, self.refuse)
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(service, {method: handler}),
                self._state.handler,
            )
        )
        where = f"{settings.bind_host}:{settings.port}"
        try:
            self.port: int = add_port(self._server, where, certificates)
        except RuntimeError as error:
            raise SettingsError(
                f"cannot listen on {where} (transport.bind_host and transport.port): {error}; "
                "choose a free port, or 0 to be given one"
            ) from error

    def start(self, group: GroupId, find: FindLink, answer: AnswerQuery) -> None:
        """Accept calls; what comes before is refused."""
        self._group, self._find = group, find
        self._state.start(group, answer)
        self._server.start()

    def stop(self) -> None:
        """End all calls; returns within seconds."""
        self._server.stop(grace=0).wait(STOP_TIMEOUT_S)

    def refused(self) -> Counter[Refusal]:
        """Calls that were not let in."""
        return self.pending.refused()

    def _exchange(
        self, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        problem = stranger(context, self._certificates)
        if problem is not None:
            self.refuse(context.peer(), Refused(Refusal.CERTIFICATE, problem))
            context.abort(grpc.StatusCode.UNAUTHENTICATED, problem)
        call = _Call(self, requests, context)
        yield from call.responses()

    def admit(
        self, stream: Stream, requests: Iterator[bytes], send_away: Callable[[], None]
    ) -> Link:
        """The link for which a stream has come, attached to it.

        Args:
            send_away: ends the call, when its first frame has not come and others wait.

        Raises:
            Refused: the first frame is not a hello that this group can accept.
        """
        with self.pending.waiting(send_away):
            first = next(requests)
        hello = read_hello(first, self._tenancy, self._group)
        link = self._find(hello.group, 0.0) or self._expect(hello.group)
        if link is None:
            raise Refused(
                Refusal.GROUP, f"group {self._group} shares no job with group {hello.group}"
            )
        link.attach(stream, hello)
        return link

    def _expect(self, group: GroupId) -> Link | None:
        if not self._expected.acquire(blocking=False):
            raise Refused(
                Refusal.BUSY, f"{EXPECTED_MAX} groups wait already for a job to be shared"
            )
        try:
            return self._find(group, self._settings.heartbeat_timeout_s)
        finally:
            self._expected.release()

    def refuse(self, peer: str, refused: Refused) -> None:
        """Count a call that is not let in, and log it if none of its kind was logged lately."""
        number, now_s = self.pending.count(refused.reason), self._clock.monotonic_s()
        last_s = self._complaints.get(refused.reason)
        if last_s is None or now_s - last_s >= COMPLAINT_INTERVAL_S:
            self._complaints[refused.reason] = now_s
            logger.warning(
                "refused a call from %s: %s (%d by now for this reason: %s)",
                peer,
                refused,
                number,
                refused.reason,
            )

    @property
    def handshake_timeout_s(self) -> float:
        """Longest time between the start of a call and the end of its handshake."""
        return 2 * self._settings.heartbeat_timeout_s


_STATUS = {
    Refusal.BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refusal.GARBAGE: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.GROUP: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.PROTOCOL: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.SILENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    Refusal.TENANCY: grpc.StatusCode.FAILED_PRECONDITION,
}


class _Call:
    """One call: the reader's thread, and the generator that gRPC's thread runs."""

    def __init__(
        self, server: Server, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> None:
        self._server = server
        self._requests = requests
        self._context = context
        self._stream = Stream(context.cancel)
        self._link: Link | None = None
        self._lock = threading.Lock()
        self._refused: Refused | None = None
        self._problem = ""
        self._decided = threading.Event()

    def responses(self) -> Iterator[bytes]:
        self._context.add_callback(self._ended)
        threading.Thread(target=self._read, name="onyx-stream-reader", daemon=True).start()
        if not self._decided.wait(self._server.handshake_timeout_s):
            self._refuse(Refused(Refusal.SILENT, "no hello came"))
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
        self._refuse(Refused(Refusal.SILENT, CANCELLED))
        self._decided.set()

    def _refuse(self, refused: Refused) -> None:
        with self._lock:
            if self._refused is not None or self._link is not None:
                return
            self._refused = refused
        self._server.refuse(self._context.peer(), refused)

    def _ended(self) -> None:
        if self._link is not None:
            self._link.detach(self._stream)
        self._stream.closed.set()
        self._decided.set()

    def _read(self) -> None:
        try:
            self._link = self._server.admit(self._stream, self._requests, self._send_away)
            self._decided.set()
            for data in self._requests:
                self._link.receive(self._stream, data)
        except (StopIteration, grpc.RpcError):
            self._problem = ""
        except Refused as refused:
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
