"""Requests of clients: a third service on the port of the streams.

A call waits on a thread of gRPC for the answer of the router. So only some calls are admitted at a
time, because streams of segments need the same threads; a client with many requests sends them in
one call (`AppendMany`), which takes two threads.

Anybody who reaches the port can open calls. A call in which no request waits is *idle*. When all
places are taken and another call comes, the one that has been idle longest is ended. So silent
calls shut nobody out; a client whose call is ended opens another with its next request. Refusing
the newest was rejected: a few silent callers would then keep all others out.

Requests are bounded by their bytes too, those of a call and those of all. A call may always have
one, so that the others cannot stop it; beyond that its client is read no further.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial

import grpc
from msgspec.structs import replace

from onyx.errors import SegmentError
from onyx.requests.request import Answer, Append, Caller, Status, answered
from onyx.telemetry.labels import Refusal
from onyx.transport.appends.messages import MANY, ONE, SERVICE, decode_append, encode_answer
from onyx.transport.gate import Gate
from onyx.transport.hello import CallRefused

logger = logging.getLogger("onyx.transport")
CLIENT_CALLS_MAX = 128
"""Calls of clients, and of workers that hand requests over, at once."""
CALL_REQUESTS_MAX = 1_024
"""Requests of one call that wait for their answers; the call is read no further then."""
CALL_BYTES_MAX = 67_108_864
"""Bytes of the requests of one call that wait for their answers."""
BYTES_MAX = 268_435_456
"""Bytes of the requests of all calls that wait for their answers."""
BUSY_RETRY_S = 0.2
LOOK_INTERVAL_S = 1.0
"""How often a call that waits looks whether it still has a client."""
Code = grpc.StatusCode
AnswerAppend = Callable[[Append], Future[Answer]]
"""Only begins. The future always gets an answer, at the latest after the time that the request
gives."""


class RequestService:
    """Answers requests from `start` on."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._answer: AnswerAppend | None = None
        self._places = CallPlaces()

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        """The service, to be registered with a gRPC server."""
        # A unary method too is registered as a stream: see `grpc_state_queries`.
        one = grpc.stream_stream_rpc_method_handler(self._one)
        many = grpc.stream_stream_rpc_method_handler(self._many)
        return grpc.method_handlers_generic_handler(SERVICE, {ONE: one, MANY: many})

    def start(self, answer: AnswerAppend) -> None:
        """Answer from now on."""
        self._answer = answer

    def _one(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        place, caller = self._admit(context)
        try:
            with self._gate.pending.waiting(context.cancel):
                data = next(requests, None)
            if data is None:
                context.abort(Code.INVALID_ARGUMENT, "a call without a request")
            assert data is not None
            place.begin(len(data), 0.0)  # a call may always have one request
            number, future = self._begin(caller, data)
            context.add_callback(future.cancel)
            yield encode_answer(_answer_of(future), number)
        except CancelledError:
            context.abort(Code.CANCELLED, "the call has ended")
        finally:
            place.leave()

    def _many(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        place, caller = self._admit(context)
        try:
            yield from _ManyCall(partial(self._begin, caller), requests, context, place).answers()
        finally:
            place.leave()

    def _admit(self, context: grpc.ServicerContext) -> tuple[CallPlace, Caller]:
        caller = self._gate.caller(context)
        place = self._places.enter(context.cancel)
        if place is None:
            self._gate.pending.count(Refusal.BUSY)
            context.abort(
                Code.RESOURCE_EXHAUSTED,
                f"{CLIENT_CALLS_MAX} calls of clients are open, each with a request that waits",
            )
        assert place is not None
        return place, caller

    def _begin(self, caller: Caller, data: bytes) -> tuple[int, Future[Answer]]:
        """The number of a request, and its answer to be."""
        assert self._answer is not None, "listens only once it is started"
        try:
            append = decode_append(data)
        except SegmentError as error:
            self._gate.refuse("a client", CallRefused(Refusal.GARBAGE, str(error)))
            return 0, answered(Answer(Status.INVALID, str(error)))
        if append.tenancy not in ("", self._gate.tenancy):
            # Anybody may ask, so the name of the tenancy is not told. It is not final: a worker of
            # that tenancy may have had this address, and there may be others.
            reason = f"this worker is of another tenancy than {append.tenancy!r}, which was asked"
            return append.number, answered(Answer(Status.UNAVAILABLE, reason))
        if append.part is None:  # of a client, who is whom the call shows
            append = replace(append, caller=caller)
        elif caller.worker:
            append = replace(append, caller=Caller(worker=True))
        elif self._gate.knows_workers:
            return append.number, answered(Answer(Status.DENIED, "only workers hand over parts"))
        # Without certificates the owner asks for the client's token again: it is in the part.
        return append.number, self._answer(append)


class _ManyCall:
    """A call with many requests: one thread reads them, and the call's own sends the answers."""

    def __init__(
        self,
        begin: Callable[[bytes], tuple[int, Future[Answer]]],
        requests: Iterator[bytes],
        context: grpc.ServicerContext,
        place: CallPlace,
    ) -> None:
        self._begin = begin
        self._requests = requests
        self._context = context
        self._place = place
        self._found: queue.SimpleQueue[tuple[int, int, Future[Answer]] | None] = queue.SimpleQueue()
        """Requests that are answered; None when no more are read."""
        self._count = 0
        """Requests that were read."""

    def answers(self) -> Iterator[bytes]:
        """Each as soon as it is there, until all requests that came are answered."""
        self._context.add_callback(lambda: self._found.put(None))
        threading.Thread(target=self._read, name="onyx-requests", daemon=True).start()
        sent, ended = 0, False
        while self._context.is_active() and not (ended and sent == self._count):
            try:
                found = self._found.get(timeout=LOOK_INTERVAL_S)
            except queue.Empty:
                continue
            if found is None:
                ended = True
                continue
            number, size_bytes, future = found
            sent += 1
            self._place.end(size_bytes)
            yield encode_answer(_answer_of(future), number)

    def _read(self) -> None:
        try:
            for data in self._requests:
                while not self._place.begin(len(data), LOOK_INTERVAL_S):
                    if not self._context.is_active():
                        return
                number, future = self._begin(data)
                self._count += 1
                future.add_done_callback(partial(self._answered, number, len(data)))
        except Exception:  # of gRPC: a bare one when the call has ended
            logger.debug("the call of a client has ended")
        finally:
            self._found.put(None)

    def _answered(self, number: int, size_bytes: int, future: Future[Answer]) -> None:
        self._found.put((number, size_bytes, future))


def _answer_of(future: Future[Answer]) -> Answer:
    """Waits. Raises CancelledError: the call has ended."""
    try:
        return future.result()
    except CancelledError:
        raise
    except Exception as error:
        logger.exception("a bug in Onyx: please report it")
        return Answer(Status.UNAVAILABLE, f"a bug in Onyx: {type(error).__name__}", BUSY_RETRY_S)


class CallPlace:
    """The place of one call."""

    def __init__(self, places: CallPlaces, cancel: Callable[[], object]) -> None:
        self._places = places
        self.cancel = cancel
        self.requests = 0
        self.bytes = 0

    def begin(self, size_bytes: int, timeout_s: float) -> bool:
        """Count a request that has come; False: there was no room for so long."""
        return self._places.begin(self, size_bytes, timeout_s)

    def end(self, size_bytes: int) -> None:
        """A request was answered."""
        self._places.end(self, size_bytes)

    def leave(self) -> None:
        """The call has ended, with all of its requests."""
        self._places.leave(self)


class CallPlaces:
    """The calls of one process. Safe to use from any thread."""

    def __init__(self, calls_max: int = CLIENT_CALLS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._calls_max = calls_max
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._idle: OrderedDict[CallPlace, None] = OrderedDict()
        """Calls without a request, the one that is idle longest first."""
        self._busy: set[CallPlace] = set()
        self._bytes = 0

    def enter(self, cancel: Callable[[], object]) -> CallPlace | None:
        """A place for a call; None: all are taken, and in each call a request waits.

        Args:
            cancel: ends the call, from another thread.
        """
        oldest = None
        with self._changed:
            if len(self._idle) + len(self._busy) >= self._calls_max:
                if not self._idle:
                    return None
                oldest, _ = self._idle.popitem(last=False)
            place = CallPlace(self, cancel)
            self._idle[place] = None
        if oldest is not None:
            oldest.cancel()
        return place

    def begin(self, place: CallPlace, size_bytes: int, timeout_s: float) -> bool:
        """Count a request of a call, as `CallPlace.begin` does."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._fits(place, size_bytes), timeout_s):
                return False
            place.requests += 1
            place.bytes += size_bytes
            self._bytes += size_bytes
            if place in self._idle:
                del self._idle[place]
                self._busy.add(place)
            return True

    def end(self, place: CallPlace, size_bytes: int) -> None:
        """Count a request no more, as `CallPlace.end` does."""
        with self._changed:
            if not place.requests:
                return  # the call has left
            place.requests -= 1
            place.bytes -= size_bytes
            self._bytes -= size_bytes
            if not place.requests and place in self._busy:
                self._busy.discard(place)
                self._idle[place] = None
            self._changed.notify_all()

    def leave(self, place: CallPlace) -> None:
        """Give a place away, as `CallPlace.leave` does."""
        with self._changed:
            self._idle.pop(place, None)
            self._busy.discard(place)
            self._bytes -= place.bytes
            place.requests, place.bytes = 0, 0
            self._changed.notify_all()

    def _fits(self, place: CallPlace, size_bytes: int) -> bool:
        if not place.requests:
            return True
        return (
            place.requests < CALL_REQUESTS_MAX
            and place.bytes + size_bytes <= CALL_BYTES_MAX
            and self._bytes + size_bytes <= self._bytes_max
        )
