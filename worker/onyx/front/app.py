"""The ASGI function: an HTTP request becomes a request of a client, and its answer the response.

What can be said without the body is said before it is read: path, token, type, size. A client that
waits for `100 Continue` then sends none in vain.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from onyx.errors import contained
from onyx.front.asked import Asked, asked_by
from onyx.front.authorizing import authorize
from onyx.front.bodies import Bodies, Held, Receive, Vanished
from onyx.front.replies import Rejected, Reply, after, rejection, reply_to
from onyx.front.states import StateQuestions, States, state_of
from onyx.plugins.options import check_options
from onyx.plugins.requests.options import HttpInputOptions
from onyx.plugins.requests.tokens import Tokens, tokens_of
from onyx.requests.append import Append, Payload
from onyx.requests.request import Answer, Status, not_final
from onyx.rights import rights_of
from onyx.seams import Clock
from onyx.settings import Settings
from onyx.storage.opening import absolute
from onyx.telemetry.catalog import HTTP_SERVED, HTTP_SERVED_SECONDS
from onyx.telemetry.interface import GroupMetrics
from onyx.telemetry.labels import Served

logger = logging.getLogger("onyx.front")

PLUGIN = "http"
BUSY_RETRY_S = 1.0
INPUTS_MAX = 1_024
"""Inputs whose tokens are remembered."""

Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class Target(msgspec.Struct, frozen=True):
    """An input that takes requests."""

    job: str
    """Id of the job."""
    task: str
    plugin: str
    options: Mapping[str, Any]
    follows: bool = False
    """Whether the job has come in the place of another one, whose input may have been served."""
    job_name: str = ""


class Requests(Protocol):
    """Where requests go. All run on the event loop of the front."""

    async def find(self, job: str, task: str, is_new: bool) -> Target | Answer:
        """An input by the id or name of its job, or the answer that there is none. `is_new`: no
        journal can have the request."""
        ...

    async def inputs(self, job: str) -> Sequence[Target] | None:
        """The inputs of all jobs that a client may mean, of those that have ended too; None: there
        is no such job."""
        ...

    async def unheard_of(self, job: str, is_new: bool) -> Answer:
        """The answer as of a job that is not there. `is_new`: as of `find`."""
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
        self._data_dir = settings.data_dir
        self._rights = rights_of(settings)
        self._most = settings.http.requests_max
        self._bodies = Bodies(settings.http)
        self._tokens: OrderedDict[tuple[str, str], Tokens] = OrderedDict()
        self._states = StateQuestions(states, _tokens_of_states(settings, clock))
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
            return reply_to(await self._answer(asked_by(scope), receive))
        except Rejected as rejected:
            return rejection(rejected)
        except (Vanished, asyncio.CancelledError):
            raise
        except Exception as error:
            logger.exception("a bug in Onyx: please report it")
            return rejection(Rejected(503, f"a bug in Onyx: {contained(error)}", after(1)))

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
                )
            )

    async def _find(self, asked: Asked) -> Target | Answer:
        try:
            async with asyncio.timeout(asked.timeout_s):
                found = await self._requests.find(asked.job, asked.task, not asked.id)
                if not await self._may_know(asked, found):
                    return await self._requests.unheard_of(asked.job, not asked.id)
        except TimeoutError as error:
            what = f"the job was not found within {asked.timeout_s:g} s"
            raise Rejected(504, what, after(BUSY_RETRY_S)) from error
        if isinstance(found, Answer):
            return found
        if found.plugin != PLUGIN:
            what = f"input {found.task!r} is not served over HTTP: its plugin is {found.plugin!r}"
            unserved = Answer(Status.UNKNOWN, what)
            return not_final(unserved) if asked.id and found.follows else unserved
        authorize(self._tokens_of(found), asked.token, "the input")
        return found

    async def _may_know(self, asked: Asked, found: Target | Answer) -> bool:
        """Whether the client may know what was found: that a job is there, what it is called and
        which inputs it has. A job without an input that is open to the client is none to it. But
        who knows the whole name of a job or its id learns that a token is wanted."""
        if isinstance(found, Target) and found.plugin == PLUGIN:
            return asked.job in (found.job, found.job_name) or self._opens(found, asked.token)
        inputs = await self._requests.inputs(asked.job)
        return inputs is None or any(
            each.plugin == PLUGIN and self._opens(each, asked.token) for each in inputs
        )

    def _opens(self, found: Target, token: bytes | None) -> bool:
        tokens = self._tokens_of(found)
        return not tokens.wanted or (token is not None and tokens.opened_by(token))

    def _tokens_of(self, found: Target) -> Tokens:
        key = (found.job, found.task)
        tokens = self._tokens.get(key)
        if tokens is None:
            options, problems = check_options(found.options, HttpInputOptions)
            if options is None or problems:
                raise Rejected(503, "the options of the input are wrong", after(BUSY_RETRY_S))
            tokens = tokens_of(options, self._rights, self._data_dir, self._clock, os.environ)
            self._tokens[key] = tokens
            if len(self._tokens) > INPUTS_MAX:
                self._tokens.popitem(last=False)
        return tokens


def _tokens_of_states(settings: Settings, clock: Clock) -> Tokens:
    file = settings.http.state_token_file
    return Tokens(clock, absolute(file, settings.data_dir) if file else None)


async def _send(reply: Reply, send: Send) -> None:
    headers = [
        (b"content-type", reply.content_type.encode()),
        (b"content-length", b"%d" % len(reply.body)),
        *((name.encode(), value.encode("latin-1")) for name, value in reply.headers.items()),
    ]
    await send({"type": "http.response.start", "status": reply.code, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
