"""What an answer means for its request, and how long to wait before it is sent again. Pure."""

from __future__ import annotations

import email.utils
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Literal

import msgspec

FIRST_PAUSE_S = 0.2
"""Before a request is sent again for the first time; doubled each time."""
RETRY_AFTER_S_MAX = 600.0
"""A server that asks for a longer pause is asked again after this one."""
SHOWN_CHARACTERS_MAX = 300
"""The length of the beginning of an answer, in errors."""
_AGAIN = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
_OF_THE_JOB = (HTTPStatus.UNAUTHORIZED, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED)

CONFLICTS_MAX = 10
"""Answers with 409 to a request in doubt, after which one more is a refusal."""

BROKEN_OFF_MAX = 5
"""Answers with 2xx that break off, to one request: the last of them counts. A server that fails
after its headers cannot say so otherwise; one whose answers never come to an end would be sent the
same for ever."""

Verdict = Literal["delivered", "again", "refused", "exhausted", "wrong"]
"""`again`: it may be taken later. `refused`: this request never is. `exhausted`: it was tried as
often as the job says. `wrong`: none is ever taken, because the job is wrong."""


class Answer(msgspec.Struct, frozen=True):
    """What a server has said, or why there is no answer."""

    status: int | None
    """None: nothing was understood."""
    text: str
    """The beginning of the answer, or the reason."""
    retry_after: str | None = None
    """The header of this name."""
    hopeless: bool = False
    """Another try would fail the same way."""
    broken_off: bool = False
    """Status and headers have come, and not all of the rest."""

    @property
    def words(self) -> str:
        """The answer in one line."""
        if self.status is None:
            return self.text
        try:
            phrase = f" {HTTPStatus(self.status).phrase}"
        except ValueError:
            phrase = ""
        phrase += " (the answer breaks off)" if self.broken_off else ""
        text = " ".join(self.text[:SHOWN_CHARACTERS_MAX].split())
        return f"{self.status}{phrase}{f': {text}' if text else ''}"


def verdict_of(answer: Answer) -> Verdict:
    """What becomes of a request with this answer."""
    status = answer.status
    if answer.hopeless:
        return "wrong"
    if status is None or status >= 500 or status in _AGAIN:
        return "again"
    if 200 <= status < 300:
        return "delivered"
    # 101 would go on in another protocol, for which nobody has asked.
    return "wrong" if status < 400 or status in _OF_THE_JOB else "refused"


class Tries:
    """The tries of one request."""

    def __init__(self, retries_max: int | None, in_doubt: bool = False) -> None:
        """`in_doubt`: the server may have the request already, or be at work on it."""
        self._retries_max = retries_max
        self._in_doubt = in_doubt
        self._conflicts = 0
        self._broken_off = 0
        self.count = 0

    def judged(self, answer: Answer) -> Verdict:
        """What becomes of the request after one more try, with this answer."""
        self.count += 1
        verdict = verdict_of(answer)
        if verdict == "refused" and self._is_at_work(answer):
            verdict = "again"
        is_last = self._retries_max is not None and self.count > self._retries_max
        if verdict == "delivered" and answer.broken_off and not is_last:
            self._broken_off += 1
            if self._broken_off < BROKEN_OFF_MAX:
                verdict = "again"
        if answer.status is None or answer.status >= 500 or answer.broken_off:
            self._in_doubt = True
        return "exhausted" if verdict == "again" and is_last else verdict

    def _is_at_work(self, answer: Answer) -> bool:
        """Whether the server may still be at work on an earlier try: 409 says that a request with
        the same key is processed, or something else."""
        if answer.status != HTTPStatus.CONFLICT or not self._in_doubt:
            return False
        self._conflicts += 1
        return self._conflicts <= CONFLICTS_MAX


def pause_s(tries: int, longest_s: float, drawn: float) -> float:
    """The pause after so many tries that failed.

    Args:
        drawn: from 0 to 1. Half of the pause is by chance, or all that fail together would come
            back together.
    """
    whole_s = min(longest_s, FIRST_PAUSE_S * 2.0 ** min(tries - 1, 30))
    return whole_s * (0.5 + drawn / 2)


def asked_pause_s(retry_after: str | None, wall_ms: int) -> float:
    """The pause that a server asks for: seconds, or a time of HTTP. 0 if it asks for none."""
    text = (retry_after or "").strip()
    if not text:
        return 0.0
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), RETRY_AFTER_S_MAX)
    try:
        at = email.utils.parsedate_to_datetime(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        left_s = (at - datetime.fromtimestamp(wall_ms / 1_000, UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0.0
    return min(max(left_s, 0.0), RETRY_AFTER_S_MAX)
