"""Which jobs' parts a stage reads: those of its own job, and of every version before it.

A job that comes in the place of another one reads on where that stopped, so what was written by
then is in the parts of the other, and so on back to the first. Before any peer of a job is ready,
its output notes beside its parts which jobs came before it. The note of the job before it is copied
and not referred to, and never changes.

The chain is not taken from the log, because that forgets jobs that have ended while their parts are
still needed, nor found by looking into `parts/`, where versions lie that were given up. One folder
for all versions was rejected for the same reason: what a version wrote that was given up would be
counted twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from onyx.errors import UserError
from onyx.ids import JobId
from onyx.plugins.protocol import Former
from onyx.structs import prepared

NOTE = "_onyx.json"
"""Beside the parts of a job. Readers of Parquet folders leave such names out."""
VERSIONS_MAX = 10_000
"""Before one job."""
_ANEW = "say `initialize` for this task in `upgrade.tasks` for a result without them"


@prepared
class Note(msgspec.Struct, frozen=True):
    """What is in the file."""

    after: tuple[JobId, ...]
    """Jobs whose parts belong to the same result, the newest first."""


class Notes(Protocol):
    """Where notes are kept. May raise OSError, Unavailable."""

    def read(self, job: JobId) -> bytes | None:
        """The note of a job."""
        ...

    def write(self, job: JobId, note: bytes) -> None:
        """Put it there in one step, durably; whoever else does so writes the same."""
        ...

    def where(self, job: JobId) -> object:
        """The folder of the parts of a job, for messages."""
        ...


def succeed(notes: Notes, job: JobId, former: Callable[[], Former | None]) -> tuple[JobId, ...]:
    """Note which jobs came before this one, unless that is noted; those jobs.

    Args:
        former: asked only if there is no note yet, for the log may have forgotten later.

    Raises:
        UserError: the parts of the former job are not there, though it has written some; or too
            many versions.
    """
    noted = _read(notes, job)
    if noted is not None:
        return noted.after
    before = former()
    after = () if before is None else _with(notes, before)
    notes.write(job, msgspec.json.encode(Note(after)))
    return after


def whose(notes: Notes, job: JobId) -> tuple[JobId, ...]:
    """The job and those before it, the oldest first.

    Raises:
        UserError: the parts of one are gone, so that the result would lack what that has written.
    """
    own = _read(notes, job)
    versions = (job, *(own.after if own else ()))
    for each in versions:
        if _read(notes, each) is None:
            raise UserError(
                f"{notes.where(each)} is gone or incomplete, with parts that the result must hold: "
                f"put it back, or {_ANEW}"
            )
    return versions[::-1]


def _with(notes: Notes, former: Former) -> tuple[JobId, ...]:
    """A job and those before it."""
    found = _read(notes, former.job)
    if found is None and former.began:
        raise UserError(
            f"{notes.where(former.job)} is not there, but job {former.job} has written parts to "
            f"it, which the result must hold: put it back, or {_ANEW}"
        )
    if found is None:  # it never was so far that it could have written
        return ()
    if len(found.after) >= VERSIONS_MAX:
        raise UserError(f"the result has parts of {VERSIONS_MAX:,} versions of the job: {_ANEW}")
    return (former.job, *found.after)


def _read(notes: Notes, job: JobId) -> Note | None:
    data = notes.read(job)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Note)
    except msgspec.DecodeError as error:
        raise UserError(f"{notes.where(job)}/{NOTE} is damaged: {error}") from error
