"""What a worker, its Spark child and executors tell each other of objects: what is to be written,
what was written, and what a store has refused.

Requests and answers pass as JSON: to executors, and from the child to its worker in a file of
names. Spark shows an exception of a Python worker as text, between stack traces of its own. So the
message of an error travels inside, encoded, and says whether another attempt may help.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from onyx.base.structs import UNREADABLE, prepared
from onyx.errors import OnyxError, Unavailable, UserError


@prepared
class ObjectTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where executors write."""

    url: str
    """The URL of the folder; names are below it."""
    run: str
    """How all names begin: of this attempt alone."""
    notes: str | None = None
    """Folder of notes of uploads, `s3://...`. With it objects are staged, and nobody sees them
    before their uploads are completed. Without it they are there at once, and count if somebody
    names them."""


@prepared
class Staged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object that was written, or staged."""

    name: str
    """Below the folder."""
    rows: int
    size_bytes: int
    upload: str = ""
    """Its id, if it is to be completed."""
    tags: tuple[str, ...] = ()
    """The tags of the pieces of the upload."""


def write_list(path: Path, staged: tuple[Staged, ...]) -> None:
    """Write what a run has written, for the worker that asked."""
    path.write_bytes(msgspec.json.encode(staged))


def read_list(path: Path) -> tuple[Staged, ...]:
    """What a run has written. Raises Unavailable: it has ended without saying so."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[Staged, ...])
    except (OSError, *UNREADABLE) as error:
        raise Unavailable(f"Spark has not said what it has written: {error}") from error


_MARK = "onyx-objects"
_FOUND = re.compile(rf"{_MARK}:([A-Za-z0-9+/=]+):{_MARK}")


@prepared
class _Message(msgspec.Struct, frozen=True):
    text: str
    by_user: bool


class CarriedError(Exception):
    """An error of an executor, as Spark shows it."""

    def __init__(self, error: OnyxError) -> None:
        message = _Message(str(error), isinstance(error, UserError))
        encoded = base64.b64encode(msgspec.json.encode(message)).decode()
        super().__init__(f"{_MARK}:{encoded}:{_MARK}")


@contextmanager
def carried() -> Iterator[None]:
    """In an executor: raises errors of Onyx so that `carried_in` finds them."""
    try:
        yield
    except OnyxError as error:
        raise CarriedError(error) from error


def carried_in(error: BaseException) -> OnyxError | None:
    """The error of an executor that an exception of Spark is about, if it is about one."""
    match = _FOUND.search(str(error))
    if match is None:
        return None
    message = msgspec.json.decode(base64.b64decode(match[1]), type=_Message)
    kind = UserError if message.by_user else Unavailable
    return kind(f"in an executor of Spark: {message.text}")
