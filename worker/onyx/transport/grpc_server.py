"""The listening side: every group with a smaller id dials here.

Each call has two threads: gRPC's pool runs the generator that writes, and one of ours reads, since
both directions block. A group that dials before this one has learned that they share a job is kept
waiting for a moment instead of being sent away to its back-off.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc

from onyx.errors import SettingsError
from onyx.ids import GroupId
from onyx.settings import TransportSettings
from onyx.tls.files import CertificateFiles
from onyx.transport import frames
from onyx.transport.frames import FrameError, Hello
from onyx.transport.grpc_client import hello_problem
from onyx.transport.grpc_options import METHOD, STREAMS_MAX, server_options
from onyx.transport.grpc_state import StateService
from onyx.transport.grpc_tls import add_port, stranger
from onyx.transport.link import Link, Stream
from onyx.transport.queries import AnswerQuery

logger = logging.getLogger("onyx.transport")

STOP_TIMEOUT_S = 2.0
COMPLAINTS_MAX = 1_000
"""Reasons for which streams were refused that are remembered, so that each is logged once."""

FindLink = Callable[[GroupId, float], Link | None]
"""The link with a group; waits up to so many seconds for there to be one."""


class Server:
    """Listens from construction on (so that the address is known), answers from `start` on."""

    def __init__(
        self, settings: TransportSettings, tenancy: str, certificates: CertificateFiles | None
    ) -> None:
        """Raises SettingsError when the address cannot be listened on."""
        self._settings = settings
        self._certificates = certificates
        self._tenancy = tenancy
        self._group = GroupId("")
        self._find: FindLink = lambda group, timeout_s: None
        self._complaints: set[str] = set()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(STREAMS_MAX, thread_name_prefix="onyx-stream"),
            options=server_options(settings, tls=certificates is not None),
            maximum_concurrent_rpcs=STREAMS_MAX,
        )
        service, _, method = METHOD[1:].partition("/")
        handler = grpc.stream_stream_rpc_method_handler(self._exchange)
        self._state = StateService(tenancy, certificates)
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
        self._group, self._find = group, find
        self._state.start(group, answer)
        self._server.start()

    def stop(self) -> None:
        """End all calls; returns within seconds."""
        self._server.stop(grace=0).wait(STOP_TIMEOUT_S)

    def _exchange(
        self, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        problem = stranger(context, self._certificates)
        if problem is not None:
            self.complain(context.peer(), problem, refused=True)
            context.abort(grpc.StatusCode.UNAUTHENTICATED, problem)
        call = _Call(self, requests, context)
        yield from call.responses()

    def admit(self, stream: Stream, first: bytes) -> Link:
        """The link for which a stream has come, attached to it.

        Raises:
            FrameError: the first frame is not a hello that this group can accept.
        """
        hello = frames.decode(first, self._settings.frame_bytes_max)
        problem = hello_problem(hello, self._tenancy, self._group)
        if problem is not None:
            raise FrameError(problem)
        assert isinstance(hello, Hello)
        link = self._find(hello.group, self._settings.heartbeat_timeout_s)
        if link is None:
            raise FrameError(f"group {self._group} shares no job with group {hello.group}")
        link.attach(stream, hello)
        return link

    def complain(self, peer: str, problem: str, *, refused: bool) -> None:
        """Log what was wrong; a refused group dials again and again, so that only once."""
        if refused:
            if problem in self._complaints:
                return
            if len(self._complaints) >= COMPLAINTS_MAX:
                self._complaints.clear()
            self._complaints.add(problem)
        what = "stream" if refused else "frame"
        logger.warning("refused a %s from %s: %s", what, peer, problem)

    @property
    def handshake_timeout_s(self) -> float:
        return 2 * self._settings.heartbeat_timeout_s


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
        self._problem = ""
        self._decided = threading.Event()

    def responses(self) -> Iterator[bytes]:
        self._context.add_callback(self._ended)
        threading.Thread(target=self._read, name="onyx-stream-reader", daemon=True).start()
        if not self._decided.wait(self._server.handshake_timeout_s):
            self._context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no hello came")
        if self._link is None:
            self._context.abort(grpc.StatusCode.FAILED_PRECONDITION, self._problem)
            return
        yield self._link.hello()
        yield from self._link.outgoing(self._stream)
        if self._problem:
            self._context.abort(grpc.StatusCode.DATA_LOSS, self._problem)

    def _ended(self) -> None:
        if self._link is not None:
            self._link.detach(self._stream)
        self._stream.closed.set()
        self._decided.set()

    def _read(self) -> None:
        try:
            self._link = self._server.admit(self._stream, next(self._requests))
            self._decided.set()
            for data in self._requests:
                self._link.receive(self._stream, data)
        except (StopIteration, grpc.RpcError):
            self._problem = ""
        except FrameError as error:
            self._problem = str(error)
            refused = self._link is None
            self._server.complain(self._context.peer(), self._problem, refused=refused)
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
