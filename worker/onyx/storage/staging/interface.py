"""What staging promises, whatever the medium: parts that appear whole, once, and of the living."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Protocol

import msgspec

from onyx.errors import UserError
from onyx.ids import GroupId

_LOGGER = logging.getLogger("onyx.storage")
STAGING = ".staging"
"""The folder, in that of the parts, with all that is not published yet."""
Token = Mapping[str, Any]
"""JSON data from which any worker can publish what was committed under it."""


class Writer(msgspec.Struct, frozen=True):
    """Who stages."""

    folder: str
    """Name of the folder of all writers of these parts, below `.staging`."""
    incarnation: GroupId
    """The group with which the writer is fenced."""
    name: str
    """What the names of the writer's folders, or of its marks, begin with."""
    task: str
    """The task, for messages to those who run the workers."""
    where: str
    """Job and task, for messages to those who run the job."""

    def error(self, what: str) -> UserError:
        """The error for a mistake in the task."""
        return UserError(f"{self.where}: {what}")

    def note_missing(self, part: object) -> None:
        """A committed part is neither staged nor published: a reader has taken it away already, or
        somebody has removed what was staged. Nobody can tell which."""
        _LOGGER.warning(
            "%s: part %s was committed, and is neither staged in %s nor there: its segments are "
            "lost, unless whoever reads the parts has taken it away already",
            self.where, part, STAGING,
        )  # fmt: skip


class Staged(Protocol):
    """A part, or several that belong together, until it is published.

    `make_room`, `settle` and `publish` raise Unavailable when they cannot be done now. Nothing is
    lost then, and the same call may be repeated.
    """

    def make_room(self) -> None:
        """Hand over what was written, so that it does not fill memory."""
        ...

    def settle(self) -> None:
        """Make the staged part durable."""
        ...

    def publish(self) -> None:
        """Make the part visible, and that durable."""
        ...

    def token(self) -> Token:
        """What any worker needs to publish a settled part (`PartStore.finish`)."""
        ...

    def drop(self) -> None:
        """Give the part up, as far as that is possible now."""
        ...


class StagedPart(Staged, Protocol):
    """One part."""

    file: BinaryIO
    """To write to. Writing never fails because a server does not answer."""


class PartStore(Protocol):
    """Stages and publishes the parts of one task, for one writer.

    Any method may raise Fenced when this incarnation was declared dead, UserError when the store
    cannot be used, Unavailable when it cannot be used now.
    """

    size_bytes_max: int
    """The size of a part."""

    def create(self, name: str) -> StagedPart:
        """A new, empty part. No other part ever has this name."""
        ...

    def finish(self, token: Token) -> None:
        """Publish a part that any writer has settled. Idempotent: a part that is published, or was
        and has been removed by a user since, stays as it is. That it is published may be durable
        only after `sync`."""
        ...

    def sync(self) -> None:
        """Make durable that parts are published."""
        ...

    def fence(self, live: Sequence[GroupId]) -> None:
        """Make it impossible for incarnations that are not `live` to publish what they staged.
        Idempotent, and safe when several peers do it at once. Only a live incarnation may call it.
        """
        ...

    def sweep(self) -> None:
        """Remove what writers have left staged whose names begin as this one's."""
        ...

    def explained(self) -> AbstractContextManager[None]:
        """Raises errors of the system as errors of this task."""
        ...

    def close(self) -> None:
        """Remove what is staged and not published, as far as that is possible now."""
        ...
