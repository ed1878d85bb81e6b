"""How an error of an object store gets from a Python worker of Spark to the worker that asked.

Spark shows an exception of a Python worker as text, between stack traces of its own. So the message
travels inside, encoded, and says whether another attempt may help.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from onyx.base.structs import prepared
from onyx.errors import OnyxError, Unavailable, UserError

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
