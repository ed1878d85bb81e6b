"""What both guarantees of the `http` output use: from segments to requests that are settled."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256

from onyx.errors import Unavailable
from onyx.plugins.http.bodies import Body, bodies_of
from onyx.plugins.http.deliveries import Deliveries
from onyx.plugins.http.endpoint import Endpoint
from onyx.plugins.http.letters import Letters
from onyx.plugins.http.options import HttpOptions
from onyx.plugins.http.sender import Request, Sender
from onyx.plugins.protocol import PluginContext, RefusedSegments
from onyx.telemetry.catalog import HTTP_REFUSALS, HTTP_REQUESTS, HTTP_RETRIES

WAIT_S_MAX = 1.0
"""Longest wait of one call for answers: a task that waits longer could not be allocated anew."""
UNSETTLED_MAX = 100_000
"""Requests, of which all may be answered but the first."""
_POLL_S = 0.05
_METRICS = {"delivered": HTTP_REQUESTS, "again": HTTP_RETRIES, "refused": HTTP_REFUSALS}
_numbers = itertools.count()
"""Numbers of outputs within this process: with the incarnation, they make keys unique."""


class Dispatch:
    """The requests of one output. Used by the task's thread."""

    def __init__(self, context: PluginContext, options: HttpOptions) -> None:
        self.context = context
        self.options = options
        self.writer = f"{context.incarnation}.{next(_numbers)}"
        """Unique for ever."""
        self.bodies = bodies_of(context, options)
        self._endpoint = endpoint = Endpoint(context, options)
        path = options.dead_letter_path
        self.letters = None if path is None else Letters(context, options, path, endpoint.shown)
        self._sender = Sender(
            context,
            endpoint.connect,
            endpoint.exchange,
            options.concurrency,
            options.retries_max,
            options.retry_seconds_max,
        )
        self._requests = itertools.count()
        self._refused: list[RefusedSegments] = []

    def requests(self, bodies: Sequence[Body]) -> list[Request]:
        """Bodies with their keys."""
        return [Request(self._key(each), each.data, each.segments) for each in bodies]

    def deliveries(self, first: int | None, raises: bool) -> Deliveries:
        """New ones, without requests.

        Args:
            first: segments written before them, in the order of writing; None: it is not known.
            raises: a refusal of which there are no letters ends the job.
        """
        report = None if first is None else partial(self._report, first)
        doing = self._endpoint.doing
        return Deliveries(self.context, self._sender, self.letters, doing, report, raises)

    def take_refused(self) -> list[RefusedSegments]:
        """What was refused since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def require_room(self, unsettled: int) -> None:
        """Raises Unavailable while too much is on its way, or so many requests are not settled."""
        if unsettled >= UNSETTLED_MAX or not self._sender.has_room:
            raise self.unavailable()

    def unavailable(self) -> Unavailable:
        """What is waited for."""
        trouble = self._sender.trouble
        what = f"waits for answers{f', the last one was {trouble}' if trouble else ''}"
        return Unavailable(f"task {self.context.task!r}: {self._endpoint.doing}: {what}")

    def await_answers(self, over: Callable[[], bool], wait_s_max: float = WAIT_S_MAX) -> None:
        """Wait until it is over, for a limited time."""
        ends_s = time.monotonic() + wait_s_max
        while not over() and time.monotonic() < ends_s and self.context.wanted():
            self._sender.await_change(_POLL_S)

    def tick(self) -> None:
        """Publish dead letters that are due, and count what has happened."""
        for what, count in self._sender.take_counts().items():
            self.context.metrics.add(_METRICS[what], count)
        if self.letters is not None:
            self.letters.tick()

    def flush(self) -> None:
        """Publish dead letters now."""
        if self.letters is not None:
            self.letters.flush()

    def close(self) -> None:
        """Send nothing any more."""
        self._sender.close()
        if self.letters is not None:
            self.letters.close()

    def _report(self, first: int, refused: RefusedSegments) -> None:
        self._refused.append(refused._replace(first=first + refused.first))

    def _key(self, body: Body) -> str:
        if body.key is not None:
            return body.key
        if self.options.idempotency == "content":
            return sha256(body.data).hexdigest()
        return f"{self.writer}-{next(self._requests)}"
