"""Requests of clients: a third service on the port of the streams.

A call waits on a thread of gRPC for the answer of the router. So only some calls are admitted at a
time (`places`), because streams of segments need the same threads; a client with many requests
sends them in one call (`AppendMany`), which takes two threads.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial

import grpc
from msgspec.structs import replace

from onyx.errors import SegmentError
from onyx.requests.request import Answer, Append, Caller, Status
from onyx.telemetry.labels import Refusal
from onyx.transport.gate import Gate
from onyx.transport.gateway.messages import decode_append, encode_answer
from onyx.transport.gateway.places import CLIENT_CALLS_MAX, Place, Places
from onyx.transport.hello import Refused

logger = logging.getLogger("onyx.transport")

SERVICE = "onyx.wire.v1.Requests"
ONE, MANY = "Append", "AppendMany"
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
        self._places = Places()

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
            place.begin(len(data), 0.0)
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
            yield from _Call(partial(self._begin, caller), requests, context, place).answers()
        finally:
            place.leave()

    def _admit(self, context: grpc.ServicerContext) -> tuple[Place, Caller]:
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
            self._gate.refuse("a client", Refused(Refusal.GARBAGE, str(error)))
            return 0, _settled(Answer(Status.INVALID, str(error)))
        if append.tenancy not in ("", self._gate.tenancy):
            # Anybody may ask, so the name of the tenancy is not told.
            reason = f"this worker is of another tenancy than {append.tenancy!r}, which was asked"
            return append.number, _settled(Answer(Status.UNKNOWN, reason))
        if append.part is None:
            append = replace(append, caller=caller)
        elif caller.worker:
            append = replace(append, caller=Caller(worker=True))
        elif self._gate.knows_workers:
            return append.number, _settled(Answer(Status.DENIED, "only workers hand over parts"))
        return append.number, self._answer(append)


class _Call:
    """A call with many requests: one thread reads them, and the call's own sends the answers."""

    def __init__(
        self,
        begin: Callable[[bytes], tuple[int, Future[Answer]]],
        requests: Iterator[bytes],
        context: grpc.ServicerContext,
        place: Place,
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


def _settled(answer: Answer) -> Future[Answer]:
    future: Future[Answer] = Future()
    future.set_result(answer)
    return future
