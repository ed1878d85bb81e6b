"""What a run of Spark is asked to write to an object store, and what it has written.

Passed as JSON: to executors, and from the Spark child to its worker in a file of names.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from onyx.base.structs import UNREADABLE, prepared
from onyx.errors import Unavailable


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
