"""The validating webhook's server: bytes in, bytes out, over TLS.

Rejected: kopf's own webhook server. It answers a malformed review with a traceback, runs handlers
one by one in the event loop, and manages a configuration that Helm manages here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from aiohttp import web

from onyx.errors import Problem, Unavailable
from onyx.structs import UNREADABLE
from onyx_operator.admission.certificates import Certificates
from onyx_operator.admission.review import MalformedReview, Review, answer, judged
from onyx_operator.admission.validators import Verdict
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import WebhookSettings

PATHS = ("/validate-onyxjobs", "/validate-onyxclusters")
"""One for each kind, so that logs of the API server distinguish them; both accept both."""
THREADS_MAX = 2
"""Reviews at the same time: they are all computation."""
logger = logging.getLogger(__name__)

Check = Callable[[Mapping[str, Any]], Awaitable[tuple[Sequence[Problem], Sequence[Problem]]]]
"""Problems and warnings of an object that is right by itself, from what is around it. It bounds its
own time, and an API server that is away is no reason to refuse anything."""


class Webhook:
    """Serves reviews at `PATHS` between `start` and `close`."""

    def __init__(
        self,
        settings: WebhookSettings,
        certificates: Certificates,
        metrics: OperatorMetrics,
        checks: Mapping[str, Check] | None = None,
    ) -> None:
        self._settings, self._certificates, self._metrics = settings, certificates, metrics
        self._checks = checks or {}
        self._threads = ThreadPoolExecutor(THREADS_MAX, "onyx-webhook")
        application = web.Application(client_max_size=settings.body_bytes_max)
        for path in PATHS:
            application.router.add_post(path, self._review)
        self._runner = web.AppRunner(application, access_log=None)
        self.port = settings.port
        """The port that it listens on."""

    async def start(self) -> None:
        """Listen.

        Raises:
            Unavailable: the port is taken.
        """
        await self._runner.setup()
        site = web.TCPSite(
            self._runner,
            self._settings.host,
            self._settings.port,
            ssl_context=self._certificates.context,
        )
        try:
            await site.start()
        except OSError as error:
            raise Unavailable(
                f"the webhook cannot listen on port {self._settings.port}: {error}"
            ) from error
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Answer what was asked, and stop listening."""
        await self._runner.cleanup()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _review(self, request: web.Request) -> web.Response:
        body = await request.read()
        try:
            found = await asyncio.wait_for(self._answer(body), self._settings.review_timeout_s)
        except MalformedReview as error:
            return self._refused(400, str(error))
        except TimeoutError:
            return self._refused(503, "too many reviews wait; try again")
        except Exception:
            logger.exception("a review failed: a bug in the operator")
            return self._refused(500, "the validator failed, which is a bug in Onyx")
        allowed = found["response"]["allowed"]
        self._metrics.reviewed("allowed" if allowed else "denied")
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    async def _answer(self, body: bytes) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        review = await loop.run_in_executor(self._threads, _judged, body)
        check = None if review.body is None else self._checks.get(str(review.body["kind"]))
        if check is not None and review.body is not None and not review.verdict.problems:
            problems, warnings = await check(review.body)
            review = review.and_also(Verdict(tuple(problems), tuple(warnings)))
        return answer(review)

    def _refused(self, status: int, message: str) -> web.Response:
        self._metrics.reviewed("failed")
        return web.Response(status=status, text=f"{message}\n")


def _judged(body: bytes) -> Review:
    try:
        review = msgspec.json.decode(body)
    except UNREADABLE as error:
        raise MalformedReview(f"this is not JSON: {error}") from error
    return judged(review)
