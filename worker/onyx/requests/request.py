"""A request hands segments to an input of a running job; its answer says what was reached."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import msgspec
from msgspec import field
from msgspec.structs import replace

from onyx.flow.batch import Segments
from onyx.ledger.outcomes import NOTHING, Outcomes
from onyx.ledger.returns import Part

ID_CHARACTERS_MAX = 256
SEGMENTS_MAX = 100_000
"""Segments of one request."""
TIMEOUT_S = 30.0
"""How long an answer is waited for, if the client does not say."""
TIMEOUT_S_MAX = 3_600.0
NOT_FINAL_RETRY_S = 1.0


class Level(enum.StrEnum):
    """What has to be reached before the answer."""

    ACK = "ack"
    """Everything that follows from the segments is durable in all outputs."""
    JOURNAL = "journal"
    """The segments are durable in the journal of the input: they will be processed."""
    NONE = "none"
    """The worker has the segments, and may lose them."""


class Status(enum.StrEnum):
    """What became of a request."""

    PROCESSED = "processed"
    FAILED = "failed"
    """The request was taken, and segments of it have failed for good; the others are processed."""
    JOURNALLED = "journalled"
    ACCEPTED = "accepted"
    """A worker has it: level `none` asks for no more."""
    CONFLICT = "conflict"
    """Its id was used before, for other content."""
    INVALID = "invalid"
    """The request cannot be taken, now or later."""
    UNKNOWN = "unknown"
    """No such job or input runs here."""
    UNAUTHENTICATED = "unauthenticated"
    """The client shows no token that opens the input."""
    DENIED = "denied"
    """The client may not ask for this, whatever token it shows."""
    BUSY = "busy"
    """There is no room now: send it again after a while."""
    UNAVAILABLE = "unavailable"
    """Nobody can take it now."""
    TIMED_OUT = "timed-out"
    """It may or may not be processed. Send it again under the same id to learn that."""

    @property
    def reached(self) -> bool:
        """Whether what the request asked for has been reached."""
        return self in (Status.PROCESSED, Status.JOURNALLED, Status.ACCEPTED)

    @property
    def final(self) -> bool:
        """Whether the request was taken, and nothing more becomes of it than was asked for."""
        return self.reached or self is Status.FAILED

    @property
    def again(self) -> bool:
        """Whether the same request may succeed later."""
        return self in (Status.BUSY, Status.UNAVAILABLE, Status.TIMED_OUT)


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request."""

    status: Status
    reason: str = ""
    """Why it was not reached, for people."""
    retry_after_s: float | None = None
    """When to send it again."""
    segments: int = 0
    """How many were taken."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """What functions of the job give back, by key."""
    parts: Mapping[str, Part] = field(default_factory=dict)
    """What they give back before it is put together, between workers."""
    values_lost: bool = False
    """Whether something that they have given back is not known any more, between workers."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Why there is no value for a key."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Why segments cannot be taken, by their number in the request."""
    outcomes: Outcomes = NOTHING
    """What became of segments that are not plainly processed."""
    owner: str = ""
    """The worker that requests for the input are passed on to; empty: the one that was asked."""


class Request(msgspec.Struct, frozen=True):
    """Segments for one partition of an input."""

    id: str
    """Name of the client's choice: the same content is taken once under one id."""
    digest: bytes
    """Digest of the content."""
    segments: Segments
    level: Level
    size_bytes: int


def answered(answer: Answer) -> Future[Answer]:
    """An answer that is there already."""
    future: Future[Answer] = Future()
    future.set_result(answer)
    return future


def not_final(answer: Answer) -> Answer:
    """The answer to a request that a journal may have."""
    if answer.status not in (Status.UNKNOWN, Status.INVALID):
        return answer
    reason = f"{answer.reason}; whether this request was taken before is not known"
    return replace(
        answer,
        status=Status.UNAVAILABLE,
        reason=reason,
        retry_after_s=answer.retry_after_s or NOT_FINAL_RETRY_S,
    )
