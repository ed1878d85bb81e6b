"""Requests in the order in which they were given, until each is settled.

A request is settled when it was answered with 2xx, when the dead letters about it are durable, or
when it was reported as refused. Answers come in any order; those behind the first
that is missing wait. So what is settled is a prefix, as `Output.durable` counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from onyx.plugins.http.letters import Letters
from onyx.plugins.http.sender import Refusal, Request, Sender, Sending
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext, RefusedSegments

Report = Callable[[RefusedSegments], None]


class Deliveries:
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
        self._waiting: deque[Sending] = deque()
        self._refused: deque[Sending] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request, in_doubt: bool = False) -> None:
        """Send a request, which somebody else may have sent if it is in doubt."""
        sending = Sending(request, self._refused, in_doubt, self._added)
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

    def _bury(self, sending: Sending) -> None:
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

    def _is_settled(self, sending: Sending) -> bool:
        if not sending.done or sending.refusal is None:
            return sending.done
        if not sending.reported or self._letters is None:
            return sending.reported
        return self._letters.durable() >= sending.letters

    def _refusal(self, request: Request, refusal: Refusal) -> str:
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
