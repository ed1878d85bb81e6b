"""Answers to questions about states: a second service on the port of the streams (`state_asking`
has who asks it).

The task answers a question itself, between two of its steps, and the thread of the call waits for
that. So only a few questions are admitted at a time: streams of segments need the same threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future

import grpc

from onyx.errors import SegmentError, Unavailable, UserError
from onyx.requests.request import Answer, Status
from onyx.requests.tokens import Tokens
from onyx.telemetry.labels import Refusal
from onyx.transport import state_queries
from onyx.transport.gate import CANCELLED, Gate
from onyx.transport.hello import CallRefused
from onyx.transport.state_asking import METHOD, SERVICE, Code
from onyx.transport.state_queries import AnswerQuery, StateAnswer, StateQuery

logger = logging.getLogger("onyx.transport")
QUERIES_MAX = 16
"""Questions that a group answers at once; more are refused as Unavailable."""
QUERY_TIMEOUT_S = 30.0
"""Longest wait for a task that does not come to answering."""
_CODES = {
    Status.DENIED: Code.PERMISSION_DENIED,
    Status.UNAUTHENTICATED: Code.UNAUTHENTICATED,
    Status.UNAVAILABLE: Code.ABORTED,
}


class StateService:
    """Answers questions from `start` on."""

    def __init__(self, gate: Gate, tokens: Tokens) -> None:
        """`tokens`: those that open states to clients."""
        self._gate = gate
        self._tokens = tokens
        self._answer: AnswerQuery | None = None
        self._free = threading.BoundedSemaphore(QUERIES_MAX)

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        """The service, to be registered with a gRPC server."""
        # For the caller the same as unary_stream. But with that, a thread of gRPC would wait for
        # the question, where no limit of ours reaches it.
        method = grpc.stream_stream_rpc_method_handler(self._query)
        return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})

    def start(self, answer: AnswerQuery) -> None:
        """Answer from now on."""
        self._answer = answer

    def _query(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        self._authorize(context)
        query = self._question(requests, context)
        if not self._free.acquire(blocking=False):
            self._gate.pending.count(Refusal.BUSY)
            context.abort(Code.RESOURCE_EXHAUSTED, f"{QUERIES_MAX} questions are being answered")
        try:
            yield from state_queries.to_pieces(self._answered(query, context))
        finally:
            self._free.release()

    def _authorize(self, context: grpc.ServicerContext) -> None:
        """End a call to whom no state is shown, by an exception of gRPC."""
        caller = self._gate.caller(context)
        if caller.worker:
            return
        if self._gate.knows_workers and not self._tokens.wanted:
            reason = "this worker shows states to workers alone: clients need ONYX_STATE_TOKEN_FILE"
            refusal: Answer | None = Answer(Status.DENIED, reason)
        else:
            refusal = self._tokens.refusal(caller.token, "a state")
        if refusal is not None:
            self._gate.refuse(context.peer(), CallRefused(Refusal.TOKEN, refusal.reason))
            context.abort(_CODES[refusal.status], refusal.reason)

    def _question(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> StateQuery:
        try:
            with self._gate.pending.waiting(context.cancel):
                request = next(requests)
            query = state_queries.decode_query(request)
            if query.tenancy != self._gate.tenancy:
                why = f"this worker is of another tenancy than {query.tenancy!r}, which was asked"
                raise CallRefused(Refusal.TENANCY, why)
            if query.group != self._gate.group:
                why = f"this is group {self._gate.group}, and group {query.group} was asked"
                raise CallRefused(Refusal.GROUP, why)
            return query
        except SegmentError as error:
            self._gate.refuse(context.peer(), CallRefused(Refusal.GARBAGE, str(error)))
            context.abort(Code.FAILED_PRECONDITION, str(error))
        except CallRefused as refused:
            self._gate.refuse(context.peer(), refused)
            context.abort(Code.ABORTED, str(refused))
        except Exception:  # of gRPC: a bare one when the call has ended
            self._gate.refuse(context.peer(), CallRefused(Refusal.SILENT, CANCELLED))
            context.abort(Code.CANCELLED, CANCELLED)
        raise AssertionError("abort raises")

    def _answered(self, query: StateQuery, context: grpc.ServicerContext) -> StateAnswer:
        future: Future[StateAnswer] = Future()
        try:
            assert self._answer is not None, "listens only once it is started"
            future = self._answer(query)
            # Nobody waits for longer than the call: not the task, and not a process that ends.
            context.add_callback(future.cancel)
            return future.result(_left_s(context))
        except UserError as error:
            code, details = Code.FAILED_PRECONDITION, str(error)
        except Unavailable as error:
            code, details = Code.ABORTED, str(error)
        except (TimeoutError, CancelledError):
            future.cancel()
            code, details = Code.DEADLINE_EXCEEDED, "the task is busy and did not come to it"
        except Exception as error:
            logger.exception("a question about a state broke on a bug")
            code, details = Code.INTERNAL, f"{type(error).__name__}: {error}"
        context.abort(code, details)
        raise AssertionError("abort raises")


def _left_s(context: grpc.ServicerContext) -> float:
    left_s: float | None = context.time_remaining()
    return QUERY_TIMEOUT_S if left_s is None else min(left_s, QUERY_TIMEOUT_S)
