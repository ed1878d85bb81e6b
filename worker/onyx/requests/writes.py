"""Writes: requests that are held back, and taken as a whole when their batch is committed.

A program that may run a part of itself again, with other segments in it, cannot give its requests
ids that say what they hold. So each run of a part holds its requests under a name of its own, and
the commit names the runs that count.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

WRITE_CHARACTERS_MAX = 256
WRITERS_MAX = 50_000
"""Writers of one batch."""
BATCH_MAX = 2**63 - 1
_DIGEST_BYTES = 16


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


class Held(msgspec.Struct, frozen=True):
    """The request is held back until its batch is committed."""

    batch: BatchOfWrite
    writer: str
    """Who holds it: a name that nobody else has, such as a random one."""
    number: int
    """The number of this request among those of the writer, from 0."""


class Writer(NamedTuple):
    """A writer whose requests count."""

    name: str
    requests: int
    """How many it holds."""


class Commit(msgspec.Struct, frozen=True):
    """Take all requests of these writers, unless the batch has been committed before."""

    batch: BatchOfWrite
    writers: tuple[Writer, ...]
