"""Which parts a stage reads: those of its own job, and of every version of the job before it.

A job that upgrades an old one reads on where that stopped, so the earlier segments are in the parts
of the old job, and so on back to the first. Before any peer of a job is ready, its output writes a
note beside its parts that lists the jobs before it. The list of the old job's note is copied, so a
note never refers to another one, and it never changes.

The log was rejected as the source of the list: it forgets jobs that have ended while their parts
are still needed. So was a listing of `parts/`, which also has versions that were given up, and one
folder for all versions: segments that a given-up version wrote would be counted twice.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from onyx.base.path_names import path_name
from onyx.base.structs import prepared, stored
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.plugins.parts.folders import published
from onyx.plugins.protocol import UpgradedJob
from onyx.spark.child.request import StageRequest
from onyx.spark.result_files import SUFFIX
from onyx.spark.stage.frames import folder_of
from onyx.storage.interface import Location

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


class Notes:
    """Notes beside the parts of jobs, in the place of one task. May raise UserError,
    Unavailable."""

    def __init__(self, location: Location) -> None:
        self._location = location

    def read(self, job: JobId) -> bytes | None:
        """The note of a job."""
        return self.where(job).read(NOTE)

    def write(self, job: JobId, note: bytes) -> None:
        """Put it there in one step, durably; whoever else does so writes the same."""
        self.where(job).create(NOTE, note)

    def where(self, job: JobId) -> Location:
        """The folder of the parts of a job."""
        return self._location / "parts" / path_name(job, "the id of a job")


def upgrade(notes: Notes, job: JobId, old: Callable[[], UpgradedJob | None]) -> tuple[JobId, ...]:
    """Note which jobs came before this one, unless that is noted; those jobs.

    Args:
        old: called only if there is no note yet, because the log may forget the old job later.

    Raises:
        UserError: the parts of the old job are gone, although it has written some; or too
            many versions.
    """
    noted = _read(notes, job)
    if noted is not None:
        return noted.after
    upgraded = old()
    after = () if upgraded is None else _with(notes, upgraded)
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


def _with(notes: Notes, old: UpgradedJob) -> tuple[JobId, ...]:
    """A job and those before it."""
    found = _read(notes, old.job)
    if found is None and old.began:
        raise UserError(
            f"{notes.where(old.job)} is not there, but job {old.job} has written parts to "
            f"it, which the result must hold: put it back, or {_ANEW}"
        )
    if found is None:  # it never was so far that it could have written
        return ()
    if len(found.after) >= VERSIONS_MAX:
        raise UserError(f"the result has parts of {VERSIONS_MAX:,} versions of the job: {_ANEW}")
    return (old.job, *found.after)


def _read(notes: Notes, job: JobId) -> Note | None:
    data = notes.read(job)
    if data is None:
        return None
    note: Note = stored(data, Note, f"{notes.where(job)}/{NOTE}", f"put it back, or {_ANEW}")
    return note


def with_parts(request: StageRequest, location: Location, job: JobId) -> StageRequest:
    """The request, each of its frames with its parts."""
    frames = tuple(
        msgspec.structs.replace(frame, parts=_parts(location, frame.name, job))
        for frame in request.frames
    )
    return msgspec.structs.replace(request, frames=frames)


def _parts(location: Location, frame: str | None, job: JobId) -> tuple[str, ...]:
    """The parts of a frame, those of earlier versions of the job first."""
    notes = Notes(folder_of(location, frame))
    folders = [notes.where(each) for each in whose(notes, job)]
    return tuple(each.path_of(name) for each in folders for name in published(each, SUFFIX))
