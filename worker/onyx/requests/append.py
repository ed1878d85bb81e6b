"""What a client hands over, before anybody has looked into it."""

from __future__ import annotations

import enum

import msgspec

from onyx.requests.caller import NOBODY, Caller
from onyx.requests.request import TIMEOUT_S, Level
from onyx.requests.writes import Commit, Held


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


class Part(msgspec.Struct, frozen=True):
    """One worker hands a part of a request to the worker that owns its partition."""

    partition: int
    """Number within the input."""
    digest: bytes
    """Digest of the whole request."""


class Append(msgspec.Struct, frozen=True):
    """A request of a client, or a part of one."""

    job: str
    """Id of the job, or its name if only one job of this name runs."""
    task: str
    """The input."""
    payload: Payload
    id: str = ""
    """Name of the request, of the client's choice; empty if it does not care."""
    level: Level = Level.ACK
    timeout_s: float = TIMEOUT_S
    tenancy: str = ""
    """Tenancy that the client means; empty if it does not care."""
    number: int = 0
    """Comes back with the answer: answers of one stream come as they are found."""
    part: Part | None = None
    fresh: bool = False
    """Whether nobody has sent anything under this id before, so that no journal can have it."""
    write: Held | Commit | None = None
    """The request is one of a write; or it has no segments, and commits a batch of one."""
    caller: Caller = NOBODY
    """Who has sent it."""

    @property
    def is_new(self) -> bool:
        """Whether no journal can have it."""
        return self.fresh or not self.id
