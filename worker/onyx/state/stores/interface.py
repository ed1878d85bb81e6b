"""Where chunks are kept: named bytes that are created once and never changed.

Creation is the only thing that two processes ever compete for. Everything else, fencing included,
is made of "create if absent", which a file system (link) and an object store (If-None-Match) have.
Appending to one file was rejected: object stores cannot, and a zombie could go on writing to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Stored(NamedTuple):
    """A name in a listing."""

    name: str
    size_bytes: int


class ChunkStore(Protocol):
    """Names are parts joined by `/`, each by the rule of `path_names`. Safe to use from any thread.

    Every method raises Unavailable when the store cannot be reached or is full (the same call may
    succeed later), UserError when somebody must mend something first (rights, bucket, path), or no
    chunk can have the name.
    """

    def create(self, name: str, data: bytes) -> bool:
        """Write `data` under a name that nobody has written.

        Returns:
            True: `data` is there and durable, from this call or an earlier one that failed in
            doubt; False: other bytes are there.
        """

    def read(self, name: str) -> bytes | None:
        """All bytes, or None when there is nothing of this name."""

    def list(self, prefix: str) -> Sequence[Stored]:
        """All whose names begin with `prefix`, which ends with `/`, in the order of their names."""

    def delete(self, name: str) -> None:
        """Remove it; nothing happens when it is not there."""
