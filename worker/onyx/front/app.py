"""The ASGI function: an HTTP request becomes a request of a client, and its answer the response.

What can be said without the body is said before it is read: path, token, type, size. A client that
waits for `100 Continue` then sends none in vain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from onyx.errors import contained
from onyx.front.asked import Asked, asked_by
from onyx.front.authorizing import raise_refusal
from onyx.front.bodies import Bodies, Held, Receive, Vanished
from onyx.front.replies import Rejected, Reply, after, rejection, reply_to
from onyx.front.states import StateQuestions, States, state_of
from onyx.plugins.requests.token_options import tokens_of_states
from onyx.requests.append import Append, Payload
from onyx.requests.caller import Caller
from onyx.requests.request import Answer, Status
from onyx.seams import Clock
from onyx.settings import Settings
from onyx.telemetry.catalog import HTTP_SERVED, HTTP_SERVED_SECONDS
from onyx.telemetry.interface import GroupMetrics
from onyx.telemetry.labels import Served

logger = logging.getLogger("onyx.front")

BUSY_RETRY_S = 1.0

Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class Target(msgspec.Struct, frozen=True):
    """An input that takes requests."""

    job: str
    """Id of the job."""
    task: str


class Requests(Protocol):
    """Where requests go. All run on the event loop of the front."""

    async def find(self, job: str, task: str, is_new: bool, caller: Caller) -> Target | Answer:
        """An input by the id or name of its job, or the answer that there is none for the caller.
        `is_new`: no journal can have the request."""
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
        states: States | None = None,
    ) -> None:
        """`states`: who answers questions about states."""
        self._requests = requests
        self._clock = clock
        self._metrics = metrics
        self._most = settings.http.requests_max
        self._bodies = Bodies(settings.http)
        self._states = StateQuestions(states, tokens_of_states(settings, clock))
        self.active = 0
        """Requests that have no answer yet."""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request. A client that goes away cancels it."""
        started_s = self._clock.monotonic_s()
        self.active += 1
        code = 0
        try:
            reply = await self._reply(scope, receive)
            code = reply.code
            await _send(reply, send)
        except (Vanished, asyncio.CancelledError):
            # Whoever cancels has closed the connection: there is nobody to answer.
            code = 0
        finally:
            self.active -= 1
            self._metrics.add(HTTP_SERVED, 1, Served.of(code))
            self._metrics.observe(HTTP_SERVED_SECONDS, self._clock.monotonic_s() - started_s)

    async def _reply(self, scope: Mapping[str, Any], receive: Receive) -> Reply:
        try:
            if self.active > self._most:
                what = f"{self._most} requests wait for their answers already"
                raise Rejected(429, what, after(BUSY_RETRY_S))
            state = state_of(scope)
            if state is not None:
                return await self._states.reply(scope, state)
            return await self._reply_to(asked_by(scope), receive)
        except Rejected as rejected:
            return rejection(rejected)
        except (Vanished, asyncio.CancelledError):
            raise
        except Exception as error:
            logger.exception("a bug in Onyx: please report it")
            return rejection(Rejected(503, f"a bug in Onyx: {contained(error)}", after(1)))

    async def _reply_to(self, asked: Asked, receive: Receive) -> Reply:
        answer = await self._answer(asked, receive)
        if answer.status is Status.UNAUTHENTICATED:
            raise_refusal(answer, asked.caller.token)
        return reply_to(answer)

    async def _answer(self, asked: Asked, receive: Receive) -> Answer:
        found = await self._find(asked)
        if isinstance(found, Answer):
            return found
        with Held(self._bodies) as held:
            data = await self._bodies.read(receive, asked.length, held)
            return await self._requests.append(
                Append(
                    job=found.job,
                    task=found.task,
                    payload=Payload(asked.form, data),
                    id=asked.id,
                    level=asked.level,
                    timeout_s=asked.timeout_s,
                    caller=asked.caller,
                )
            )

    async def _find(self, asked: Asked) -> Target | Answer:
        try:
            async with asyncio.timeout(asked.timeout_s):
                return await self._requests.find(asked.job, asked.task, not asked.id, asked.caller)
        except TimeoutError as error:
            what = f"the job was not found within {asked.timeout_s:g} s"
            raise Rejected(504, what, after(BUSY_RETRY_S)) from error


async def _send(reply: Reply, send: Send) -> None:
    headers = [
        (b"content-type", reply.content_type.encode()),
        (b"content-length", b"%d" % len(reply.body)),
        *((name.encode(), value.encode("latin-1")) for name, value in reply.headers.items()),
    ]
    await send({"type": "http.response.start", "status": reply.code, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
