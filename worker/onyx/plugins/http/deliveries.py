"""Requests in the order in which they were given, until each is settled.

A request is settled when it was answered with 2xx, when the dead letters about it are durable, or
when it was reported as refused. Answers come in any order; those behind the first
that is missing wait. So what is settled is a prefix, as `Output.durable` counts.

Dead letters about segments that the server has refused are JSON lines in parts. A letter has the
form of those that a task with `deadLetter` sends. An output has no task behind it, so it writes its
letters itself. They are written at least once: after a failure a request is sent and refused again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from onyx.flow.dead_letters import dead_letter
from onyx.ids import GroupId
from onyx.plugins.http.bodies import segments_in
from onyx.plugins.http.options import HttpOptions
from onyx.plugins.http.sender import HttpRefusal, HttpRequest, Sender, SentRequest
from onyx.plugins.options import located, task_error
from onyx.plugins.parts.folders import parts_at
from onyx.plugins.parts.formats import JsonLinesFormat
from onyx.plugins.parts.writer import PartsWriter
from onyx.plugins.protocol import PluginContext, RefusedSegments
from onyx.plugins.rolling import RollLimits
from onyx.telemetry.catalog import DEAD_LETTERS

Report = Callable[[RefusedSegments], None]
LETTERS_AGE_S = 5.0
"""Until then letters are not published, and what was refused is not settled."""


class OrderedDeliveries:
    """Requests that were given to the sender. Used by the task's thread."""

    def __init__(
        self,
        context: PluginContext,
        sender: Sender,
        letters: Letters | None,
        doing: str,
        report: Report | None,
        raises: bool,
    ) -> None:
        """
        Args:
            doing: what is done, for errors: `POST https://example.com/orders`.
            report: takes what is refused, counted from the first request; None: nobody does.
            raises: a refusal of which there are no letters ends the job.
        """
        self._context = context
        self._report = report
        self._raises = raises or report is None
        self._added = 0
        self._sender = sender
        self._letters = letters
        self._doing = doing
        self._waiting: deque[SentRequest] = deque()
        self._refused: deque[SentRequest] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: HttpRequest, in_doubt: bool = False) -> None:
        """Send a request, which somebody else may have sent if it is in doubt."""
        sending = SentRequest(request, self._refused, in_doubt, self._added)
        self._added += request.segments
        self._waiting.append(sending)
        self._sender.submit(sending)

    def settle(self) -> int:
        """Segments of the requests that are settled since the last call.

        Raises:
            UserError: a request was refused, and nobody takes it; or the job is wrong.
            Unavailable: a dead letter cannot be written now.
        """
        if self._sender.failure is not None:
            raise self._sender.failure
        while self._refused:
            self._bury(self._refused[0])
            self._refused.popleft()
        segments = 0
        while self._waiting and self._is_settled(self._waiting[0]):
            segments += self._waiting.popleft().request.segments
        return segments

    def _bury(self, sending: SentRequest) -> None:
        refusal = sending.refusal
        assert refusal is not None, "it is among those that were refused"
        kept = self._letters is not None
        error = task_error(self._context, self._refusal(sending.request, refusal))
        if refusal.verdict == "wrong" or (self._raises and not kept):
            raise error
        if self._letters is not None:
            sending.letters = self._letters.write(sending.request, refusal)
        sending.reported = True
        if self._report is not None:
            self._report(RefusedSegments(sending.first, sending.request.segments, error, kept))

    def _is_settled(self, sending: SentRequest) -> bool:
        if not sending.done or sending.refusal is None:
            return sending.done
        if not sending.reported or self._letters is None:
            return sending.reported
        return self._letters.durable() >= sending.letters

    def _refusal(self, request: HttpRequest, refusal: HttpRefusal) -> str:
        """What happened, and what to do about it."""
        answer = refusal.answer
        if refusal.verdict == "exhausted":
            hint = f"it was tried {refusal.tries:,} times; raise retriesMax"
        elif answer.hopeless:
            hint = "caFile names whom to trust"
        elif refusal.verdict == "wrong" and answer.status is not None and answer.status >= 400:
            hint = "look at what headersEnv and headersFile name"
        elif refusal.verdict == "wrong":
            hint = "look at url"
        elif self._letters is not None:
            return f"{self._doing} failed: {answer.words}"
        else:
            hint = "deadLetterPath collects what is refused"
            if self._raises:  # or a client would read what another one has sent
                begins = request.body[:80].decode("utf-8", "backslashreplace")
                hint = f"the request begins with {begins!r}; {hint}"
        return f"{self._doing} failed: {answer.words} ({hint})"


class Letters:
    """The letters of one task. Used by the task's thread."""

    def __init__(self, context: PluginContext, options: HttpOptions, path: str, url: str) -> None:
        """`url`: as messages show it."""
        self._context = context
        self._format = options.format
        self._url = url
        self._written = 0
        store = parts_at(located(context, path, "deadLetterPath"), context)
        form = JsonLinesFormat(context, nan="text")
        self._parts = PartsWriter(store, form, context, RollLimits(age_s=LETTERS_AGE_S))

    def write(self, request: HttpRequest, refusal: HttpRefusal) -> int:
        """Write a letter about each segment of a request.

        Returns:
            How many letters have to be durable (`durable`) for these to be.

        Raises:
            Unavailable: nothing was written; it is to be called again.
        """
        segments = segments_in(request.body, self._format)
        letters = [self._letter(n, each, request, refusal) for n, each in enumerate(segments)]
        self._parts.write(letters)
        self._written += len(letters)
        self._context.metrics.add(DEAD_LETTERS, len(letters))
        self._context.metrics.note(DEAD_LETTERS, lambda: refusal.answer.words)
        return self._written

    def durable(self) -> int:
        """Letters that are published, in the order of writing."""
        return self._parts.durable()

    def tick(self) -> None:
        """Publish letters that have waited long enough."""
        self._parts.tick()

    def flush(self) -> None:
        """Publish all letters."""
        self._parts.flush()

    def fence(self, live: Sequence[GroupId]) -> None:
        """Fence off all incarnations that are not `live`."""
        self._parts.fence(live)

    def close(self) -> None:
        """Drop letters that are not published: their requests are not settled."""
        self._parts.close()

    def _letter(self, number: int, segment: Any, request: HttpRequest, refusal: HttpRefusal) -> Any:
        answer, context = refusal.answer, self._context
        error = {
            "type": "Refused",
            "message": answer.words,
            "status": answer.status,
            "answer": answer.text,
            "url": self._url,
            "key": request.key,
        }
        # A request that is sent again has the same key, where the server knows it by that.
        id = blake2b(f"{number} {request.key}".encode(), digest_size=8).hexdigest()
        wall_ms = context.clock.wall_ms()
        return dead_letter(context.job, context.task, segment, error, refusal.tries, wall_ms, id)
