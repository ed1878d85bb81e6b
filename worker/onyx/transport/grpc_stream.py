"""One call of another group: the thread that reads, and the generator that writes.

Both directions block, so gRPC's pool runs the generator, and a thread of ours reads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import grpc

from onyx.telemetry.labels import Refusal
from onyx.transport.frames.packets import FrameError
from onyx.transport.gate import Gate
from onyx.transport.hello import CallRefused
from onyx.transport.link import Link
from onyx.transport.pending_hellos import CANCELLED
from onyx.transport.stream import Stream

logger = logging.getLogger("onyx.transport")

_STATUS = {
    Refusal.BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refusal.GARBAGE: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.GROUP: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.PROTOCOL: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.SILENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    Refusal.TENANCY: grpc.StatusCode.FAILED_PRECONDITION,
}


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
