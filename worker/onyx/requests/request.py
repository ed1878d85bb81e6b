"""A request hands segments to an input of a running job; its answer says what was reached.

An `Append` is what a client hands over, before anybody has looked into it; a `Request` is what of
it one partition gets.

Requests of a *write* are held back, and taken as a whole when their batch is committed: a program
that may run a part of itself again, with other segments in it, cannot give its requests ids that
say what they hold. So each run of a part holds its requests under a name of its own, and the commit
names the runs that count.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import field
from msgspec.structs import replace

from onyx.ledger.outcomes import NOTHING, Outcomes
from onyx.ledger.returns import ReturnPart

if TYPE_CHECKING:  # who only shows a token needs neither pyarrow nor NumPy
    from onyx.flow.batch import Segments

ID_CHARACTERS_MAX = 256
SEGMENTS_MAX = 100_000
"""Segments of one request."""
TIMEOUT_S = 30.0
"""How long an answer is waited for, if the client does not say."""
TIMEOUT_S_MAX = 3_600.0
NOT_FINAL_RETRY_S = 1.0
WRITE_CHARACTERS_MAX = 256
WRITERS_MAX = 50_000
"""Writers of one batch."""
BATCH_MAX = 2**63 - 1
_DIGEST_BYTES = 16


class Level(enum.StrEnum):
    """What has to be reached before the answer."""

    ACK = "ack"
    """Everything that follows from the segments is durable in all outputs."""
    JOURNAL = "journal"
    """The segments are durable in the journal of the input: they will be processed."""
    NONE = "none"
    """The worker has the segments, and may lose them."""


class Form(enum.StrEnum):
    """How segments are written."""

    JSON_LINES = "json lines"
    """An object a line; a JSON array of objects too."""
    ARROW = "Arrow stream"
    """An Arrow IPC stream."""
    MSGPACK = "msgpack"
    """An array of maps, with the extensions of `codec.kinds`."""


class Payload(msgspec.Struct, frozen=True):
    """Segments as bytes."""

    form: Form
    data: bytes


class Caller(msgspec.Struct, frozen=True):
    """A client, or a worker that hands a part of a request over."""

    token: bytes = b""
    """The bearer token that was shown; empty: none."""
    worker: bool = False
    """Whether its certificate is that of a worker, which may do everything."""
    http: bool = False
    """Whether it came over HTTP, where only inputs with `plugin: http` are served."""

    def __repr__(self) -> str:
        return f"Caller(worker={self.worker}, http={self.http})"


NOBODY = Caller()
"""A client that shows nothing."""


class RequestTarget(msgspec.Struct, frozen=True):
    """An input of a running job that takes requests."""

    job: str
    """Id of the job."""
    task: str


class PartOfRequest(msgspec.Struct, frozen=True):
    """One worker hands a part of a request to the worker that owns its partition."""

    partition: int
    """Number within the input."""
    digest: bytes
    """Digest of the whole request."""


class BatchOfWrite(NamedTuple):
    """What is committed in one step."""

    write: str
    """Id of the write, of the client's choice."""
    batch: int
    """Its number; a write that has but one takes 0."""

    @property
    def digest(self) -> str:
        """The id of the write as a name that a path may have."""
        return hashlib.blake2b(self.write.encode(), digest_size=_DIGEST_BYTES).hexdigest()


class HeldRequest(msgspec.Struct, frozen=True):
    """The request is held back until its batch is committed."""

    batch: BatchOfWrite
    writer: str
    """Who holds it: a name that nobody else has, such as a random one."""
    number: int
    """The number of this request among those of the writer, from 0."""


class WriterOfBatch(NamedTuple):
    """A writer whose requests count."""

    name: str
    requests: int
    """How many it holds."""


class Commit(msgspec.Struct, frozen=True):
    """Take all requests of these writers, unless the batch has been committed before."""

    batch: BatchOfWrite
    writers: tuple[WriterOfBatch, ...]


class Append(msgspec.Struct, frozen=True):
    """A request of a client, or a part of one."""

    job: str
    """Id of the job, or its name if only one job of this name runs."""
    task: str
    """The input; empty if the job has only one."""
    payload: Payload
    id: str = ""
    """Name of the request, of the client's choice; empty if it does not care."""
    level: Level = Level.ACK
    timeout_s: float = TIMEOUT_S
    tenancy: str = ""
    """Tenancy that the client means; empty if it does not care."""
    number: int = 0
    """Comes back with the answer: answers of one stream come as they are found."""
    part: PartOfRequest | None = None
    fresh: bool = False
    """Whether nobody has sent anything under this id before, so that no journal can have it."""
    write: HeldRequest | Commit | None = None
    """The request is one of a write; or it has no segments, and commits a batch of one."""
    caller: Caller = NOBODY
    """Who has sent it."""

    @property
    def is_new(self) -> bool:
        """Whether no journal can have it."""
        return self.fresh or not self.id


class Request(msgspec.Struct, frozen=True):
    """Segments for one partition of an input."""

    id: str
    """Name of the client's choice: the same content is taken once under one id."""
    digest: bytes
    """Digest of the content."""
    segments: Segments
    level: Level
    size_bytes: int


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
    parts: Mapping[str, ReturnPart] = field(default_factory=dict)
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
