"""The ASGI function: an HTTP request becomes a request of a client, and its answer the response.

What can be said without the body is said before it is read: path, token, type, size. A client that
waits for `100 Continue` then sends none in vain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from onyx.base.seams import Clock
from onyx.errors import contained
from onyx.gateway.asked import Asked, asked_by
from onyx.gateway.authorizing import raise_refusal
from onyx.gateway.interface import Requests, Target
from onyx.gateway.replies import rejection, reply_to
from onyx.gateway.states import StateQuestions, States, state_of
from onyx.plugins.requests.token_options import tokens_of_states
from onyx.requests.append import Append, Payload
from onyx.requests.request import Answer, Status
from onyx.serving.bodies import Bodies, Receive, Vanished
from onyx.serving.replies import Rejected, Reply, Send, after
from onyx.serving.server import connections_max
from onyx.serving.shares import ADDRESS_FAVOUR, OWNER_FAVOUR, Held, Shares, address_of
from onyx.settings import Settings
from onyx.telemetry.catalog import HTTP_SERVED, HTTP_SERVED_SECONDS
from onyx.telemetry.interface import GroupMetrics
from onyx.telemetry.labels import Served

logger = logging.getLogger("onyx.gateway")

BUSY_RETRY_S = 1.0


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
            with Held() as held:
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

    async def _reply(self, scope: Mapping[str, Any], receive: Receive, held: Held) -> Reply:
        try:
            address = address_of(scope.get("client"))
            if not held.take(self._by_address, address):
                raise _busy("from your address")
            state = state_of(scope)
            if state is not None:
                return await self._states.reply(scope, state)
            return await self._reply_to(asked_by(scope), receive, held, address)
        except Rejected as rejected:
            return rejection(rejected)
        except (Vanished, asyncio.CancelledError):
            raise
        except Exception as error:
            logger.exception("a bug in Onyx: please report it")
            return rejection(Rejected(503, f"a bug in Onyx: {contained(error)}", after(1)))

    async def _reply_to(self, asked: Asked, receive: Receive, held: Held, address: str) -> Reply:
        answer = await self._answer(asked, receive, held, address)
        if answer.status is Status.UNAUTHENTICATED:
            raise_refusal(answer, asked.caller.token)
        return reply_to(answer)

    async def _answer(self, asked: Asked, receive: Receive, held: Held, address: str) -> Answer:
        found = await self._find(asked)
        if isinstance(found, Answer):
            return found
        owner = f"{found.job}/{found.task}"
        if not held.take(self._by_input, owner):
            raise _busy("to this input")
        data = await self._bodies.read(receive, asked.length, held, address, owner)
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


def _busy(which: str) -> Rejected:
    what = f"as many requests {which} as may wait for their answers already"
    return Rejected(429, what, after(BUSY_RETRY_S))
