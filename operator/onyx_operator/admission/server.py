"""The server of both webhooks, validating and marking: bytes in, bytes out, over TLS; served while
the operator runs, if it has a certificate.

Any pod may reach its port. So it has the server of the workers' port for HTTP, with its limits of
connections, times and sizes, and looks at no more of a review than that is worth.

Rejected: kopf's own webhook server. It answers a malformed review with a traceback, runs handlers
one by one in the event loop, and manages a configuration that Helm manages here. aiohttp's: it
bounds neither connections nor the time of a head or a body.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from onyx.base.structs import UNREADABLE, json_values
from onyx.errors import Problem
from onyx.serving.bodies import Bodies, Receive, Vanished
from onyx.serving.listening import listener_at
from onyx.serving.replies import Rejected, Reply, Send
from onyx.serving.server import HttpServer, connections_max
from onyx.serving.shares import OWNER_FAVOUR, HeldShares, Shares, address_of
from onyx.tls.server_files import ServerFiles
from onyx_operator.admission.review import MalformedReview, Review, answer, judged, marked
from onyx_operator.admission.validators import Verdict
from onyx_operator.authors import Authors
from onyx_operator.context import OperatorProcess
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import WebhookSettings

PATHS = ("/validate-onyxjobs", "/validate-onyxclusters")
"""One for each kind, so that logs of the API server distinguish them; both accept both."""
MARK_PATH = "/mark-onyxjobs"
"""Asked for who changes or deletes an OnyxJob."""
THREADS_MAX = 2
"""Reviews at the same time: they are all computation."""
VALUES_MAX = 250_000
"""Values of a review, counted before they are made. An object has at most 20,000, twice in a review
and once as text in an annotation, besides what the API server notes about its fields."""
VARIABLES = "ONYX_OPERATOR_WEBHOOK"
BUSY = "too many reviews wait; try again"
logger = logging.getLogger(__name__)

Check = Callable[[Mapping[str, Any]], Awaitable[tuple[Sequence[Problem], Sequence[Problem]]]]
"""Problems and warnings of an object that is right by itself, from what is around it. It bounds its
own time, and an API server that is away is no reason to refuse anything."""


async def serve_webhook(
    operator: OperatorProcess, checks: Mapping[str, Check], opened: AsyncExitStack
) -> None:
    """Serve the webhook while the operator runs, if it has a certificate."""
    settings = operator.settings.webhook
    if not settings.cert_file:
        return
    webhook = Webhook(settings, operator.metrics, operator.authors, checks)
    opened.push_async_callback(webhook.close)
    await webhook.start()


class Webhook:
    """Serves reviews at `PATHS` and `MARK_PATH` between `start` and `close`.

    Raises:
        SettingsError: the certificates are not good.
    """

    def __init__(
        self,
        settings: WebhookSettings,
        metrics: OperatorMetrics,
        authors: Authors,
        checks: Mapping[str, Check] | None = None,
    ) -> None:
        self._settings, self._metrics = settings, metrics
        self._checks = checks or {}
        self._authors = authors
        self._threads = ThreadPoolExecutor(THREADS_MAX, "onyx-webhook")
        self._places = Shares(connections_max(settings), OWNER_FAVOUR)
        self._bodies = Bodies(settings)
        names = (settings.cert_file, settings.key_file, settings.client_ca_file)
        self._files = ServerFiles(*names, VARIABLES)
        self._server: HttpServer | None = None
        self.port = settings.port
        """The port that it listens on."""

    async def start(self) -> None:
        """Listen at the port of the settings.

        Raises:
            Unavailable: the port is taken.
        """
        where = f"{VARIABLES}_HOST and {VARIABLES}_PORT"
        listener = listener_at(self._settings.host, self._settings.port, where)
        self._server = HttpServer(self._settings, self, listener, self._files)
        self.port = self._server.port
        await self._server.open()

    async def close(self) -> None:
        """Answer what was asked, and stop listening."""
        if self._server is not None:
            await self._server.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request. A client that goes away cancels it."""
        try:
            with HeldShares() as held:
                reply = await self._reply(scope, receive, held)
                await reply.to(send)
        except (Vanished, asyncio.CancelledError):
            self._metrics.reviewed("failed")

    def unreadable(self, why: str) -> Reply:
        """The reply to what is not even a request."""
        return self._refused(Rejected(400, why))

    async def _reply(self, scope: Mapping[str, Any], receive: Receive, held: HeldShares) -> Reply:
        try:
            if scope["path"] not in (*PATHS, MARK_PATH):
                raise Rejected(404, f"there is nothing here: POST to {' or '.join(PATHS)}")
            if scope["method"] != "POST":
                raise Rejected(405, "POST a review", {"Allow": "POST"})
            address = address_of(scope.get("client"))
            if not held.take(self._places, address):
                raise Rejected(503, BUSY)
            # No gateway is between: whose a review is, its address says.
            body = await self._bodies.read(receive, None, held, address, owner=address)
            answer = self._marked if scope["path"] == MARK_PATH else self._answer
            return await self._review(answer, body)
        except Rejected as rejected:
            return self._refused(rejected)

    async def _review(
        self, answer: Callable[[bytes], Awaitable[dict[str, Any]]], body: bytes
    ) -> Reply:
        try:
            async with asyncio.timeout(self._settings.review_timeout_s):
                found = await answer(body)
        except MalformedReview as error:
            raise Rejected(400, str(error)) from error
        except TimeoutError as error:
            raise Rejected(503, BUSY) from error
        except Exception as error:
            logger.exception("a review failed: a bug in the operator")
            raise Rejected(500, "the validator failed, which is a bug in Onyx") from error
        allowed = found["response"]["allowed"]
        self._metrics.reviewed("allowed" if allowed else "denied")
        return Reply(200, msgspec.json.encode(found))

    async def _answer(self, body: bytes) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        review = await loop.run_in_executor(self._threads, _judged, body)
        check = None if review.body is None else self._checks.get(str(review.body["kind"]))
        if check is not None and review.body is not None and not review.verdict.problems:
            problems, warnings = await check(review.body)
            review = review.and_also(Verdict(tuple(problems), tuple(warnings)))
        return answer(review)

    async def _marked(self, body: bytes) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        return marked(await loop.run_in_executor(self._threads, _decoded, body), self._authors)

    def _refused(self, rejected: Rejected) -> Reply:
        self._metrics.reviewed("failed")
        body = f"{rejected.reason}\n".encode()
        return Reply(rejected.code, body, rejected.headers, "text/plain; charset=utf-8")


def _judged(body: bytes) -> Review:
    return judged(_decoded(body))


def _decoded(body: bytes) -> Any:
    if json_values(body) > VALUES_MAX:
        raise MalformedReview(f"this has more than {VALUES_MAX:,} values")
    try:
        return msgspec.json.decode(body)
    except UNREADABLE as error:
        raise MalformedReview(f"this is not JSON: {error}") from error
