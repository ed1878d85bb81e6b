"""The ASGI function: an HTTP request becomes a request of a client, and its answer the response.

What can be said without the body is said before it is read: path, token, type, size. A client that
waits for `100 Continue` then sends none in vain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from onyx.base.seams import Clock
from onyx.errors import contained
from onyx.gateway.request_head import RequestHead, head_of, raise_refusal
from onyx.gateway.states import StateQuestions, StateService, state_of
from onyx.ledger.outcomes import NOTHING, plain
from onyx.requests.request import Answer, Append, Caller, Payload, RequestTarget, Status
from onyx.serving.bodies import Bodies, Receive, Vanished
from onyx.serving.replies import Rejected, Reply, Send, after
from onyx.serving.server import connections_max
from onyx.serving.shares import ADDRESS_FAVOUR, OWNER_FAVOUR, HeldShares, Shares, address_of
from onyx.settings import Settings
from onyx.telemetry.catalog import HTTP_SERVED, HTTP_SERVED_SECONDS
from onyx.telemetry.interface import GroupMetrics
from onyx.telemetry.labels import Served
from onyx.transport.state_queries import tokens_of_states

logger = logging.getLogger("onyx.gateway")
BUSY_RETRY_S = 1.0
RETRY_AFTER_S = 1.0
"""Where an answer does not say when to come again."""
STATUSES: Mapping[Status, int] = {
    Status.PROCESSED: 200,
    Status.FAILED: 422,
    Status.JOURNALLED: 202,
    Status.ACCEPTED: 202,
    Status.CONFLICT: 409,
    Status.INVALID: 400,
    Status.UNKNOWN: 404,
    Status.UNAUTHENTICATED: 401,
    Status.DENIED: 403,
    Status.BUSY: 429,
    Status.UNAVAILABLE: 503,
    Status.TIMED_OUT: 504,
}
ROWS_REFUSED = 422
"""In place of 400, when it is known which segments are wrong."""
_OWN = {
    400: "bad-request",
    401: "unauthorized",
    404: Status.UNKNOWN,
    405: "method-not-allowed",
    406: "unsupported-type",
    408: "too-slow",
    413: "too-large",
    415: "unsupported-type",
    429: Status.BUSY,
    431: "too-large",
    503: Status.UNAVAILABLE,
    504: Status.TIMED_OUT,
}
"""The status of what is answered by HTTP alone, before a request is taken."""
_encoder = msgspec.json.Encoder(enc_hook=str)


class Requests(Protocol):
    """Where requests go: to the router (`peer.router.router.CurrentRouter`). All run on the event
    loop of the gateway."""

    async def find(
        self, job: str, task: str, is_new: bool, caller: Caller
    ) -> RequestTarget | Answer:
        """An input by the id or name of its job, or the answer that there is none for the caller.
        `is_new`: no journal can have the request, because it has no id, or a fresh one."""
        ...

    async def append(self, append: Append) -> Answer:
        """The answer to a request, at the latest after the time that it gives."""
        ...


class App:
    """Serves one process. Only on the thread of its event loop."""

    def __init__(
        self,
        settings: Settings,
        requests: Requests,
        clock: Clock,
        metrics: GroupMetrics,
        states: StateService | None = None,
    ) -> None:
        """`states`: who answers questions about states."""
        self._requests = requests
        self._clock = clock
        self._metrics = metrics
        places = min(settings.http.requests_max, connections_max(settings.http))
        self._by_address = Shares(places, ADDRESS_FAVOUR)
        self._by_input = Shares(places, OWNER_FAVOUR)
        self._bodies = Bodies(settings.http)
        self._states = StateQuestions(states, tokens_of_states(settings, clock))

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request. A client that goes away cancels it."""
        started_s = self._clock.monotonic_s()
        code = 0
        try:
            with HeldShares() as held:
                reply = await self._reply(scope, receive, held)
                code = reply.code
                await reply.to(send)
        except (Vanished, asyncio.CancelledError):
            # Whoever cancels has closed the connection: there is nobody to answer.
            code = 0
        finally:
            self._metrics.add(HTTP_SERVED, 1, Served.of(code))
            self._metrics.observe(HTTP_SERVED_SECONDS, self._clock.monotonic_s() - started_s)

    @property
    def active(self) -> int:
        """Requests that have no answer yet."""
        return self._by_address.held

    def unreadable(self, why: str) -> Reply:
        """The reply to what is not even a request."""
        self._metrics.add(HTTP_SERVED, 1, Served.of(400))
        return rejection(Rejected(400, why))

    async def _reply(self, scope: Mapping[str, Any], receive: Receive, held: HeldShares) -> Reply:
        try:
            address = address_of(scope.get("client"))
            if not held.take(self._by_address, address):
                raise _busy("from your address")
            state = state_of(scope)
            if state is not None:
                return await self._states.reply(scope, state)
            return await self._reply_to(head_of(scope), receive, held, address)
        except Rejected as rejected:
            return rejection(rejected)
        except (Vanished, asyncio.CancelledError):
            raise
        except Exception as error:
            logger.exception("a bug in Onyx: please report it")
            return rejection(Rejected(503, f"a bug in Onyx: {contained(error)}", after(1)))

    async def _reply_to(
        self, head: RequestHead, receive: Receive, held: HeldShares, address: str
    ) -> Reply:
        answer = await self._answer(head, receive, held, address)
        if answer.status is Status.UNAUTHENTICATED:
            raise_refusal(answer, head.caller.token)
        return reply_to(answer)

    async def _answer(
        self, head: RequestHead, receive: Receive, held: HeldShares, address: str
    ) -> Answer:
        found = await self._find(head)
        if isinstance(found, Answer):
            return found
        owner = f"{found.job}/{found.task}"
        if not held.take(self._by_input, owner):
            raise _busy("to this input")
        data = await self._bodies.read(receive, head.length, held, address, owner)
        return await self._requests.append(
            Append(
                job=found.job,
                task=found.task,
                payload=Payload(head.form, data),
                id=head.id,
                level=head.level,
                timeout_s=head.timeout_s,
                caller=head.caller,
            )
        )

    async def _find(self, head: RequestHead) -> RequestTarget | Answer:
        try:
            async with asyncio.timeout(head.timeout_s):
                return await self._requests.find(head.job, head.task, not head.id, head.caller)
        except TimeoutError as error:
            what = f"the job was not found within {head.timeout_s:g} s"
            raise Rejected(504, what, after(BUSY_RETRY_S)) from error


def _busy(which: str) -> Rejected:
    what = f"as many requests {which} as may wait for their answers already"
    return Rejected(429, what, after(BUSY_RETRY_S))


def reply_to(answer: Answer) -> Reply:
    """The reply with an answer."""
    code = STATUSES[answer.status]
    if answer.status is Status.INVALID and answer.refused:
        code = ROWS_REFUSED
    headers = {}
    if answer.status.again:
        headers = after(RETRY_AFTER_S if answer.retry_after_s is None else answer.retry_after_s)
    body = {
        "status": answer.status,
        "reason": answer.reason,
        "segments": answer.segments,
        **plain(answer.outcomes),
        "values": answer.values,
        "errors": answer.errors,
        "refused": answer.refused,
    }
    return Reply(code, _encoder.encode(body), headers)


def rejection(rejected: Rejected) -> Reply:
    """The reply without an answer."""
    body: dict[str, Any] = {
        "status": _OWN[rejected.code],
        "reason": rejected.reason,
        "segments": 0,
        **plain(NOTHING),
        "values": {},
        "errors": {},
        "refused": {},
    }
    return Reply(rejected.code, _encoder.encode(body), rejected.headers)
