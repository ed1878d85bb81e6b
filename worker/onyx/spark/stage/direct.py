"""Direct writes: Spark itself publishes, to a database or whatever a format leads to.

    <path>/writes/<job>.json   what is known of the write of a job

Such a write has no fence and cannot be undone, so it is noted twice. The first note is written by
the worker when all is ready and it may still publish, and only then Spark begins. The last one is
written when Spark has ended. Who finds the last note does nothing. Who finds only the first one
knows that rows may have been written: it overwrites, or refuses unless the job says `repeat`.
Between the end of the write and its note lies an instant in which a crash leaves it in doubt.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Literal

import msgspec

from onyx.base.path_names import path_name
from onyx.base.structs import prepared, stored
from onyx.errors import FailsAgain, OnyxError, Unavailable
from onyx.ids import JobId
from onyx.spark.child.request import StageRequest, StageRunner, Watch
from onyx.spark.stage.versions import with_parts
from onyx.storage.interface import Location

_LOOK = (
    "it says whether rows were written: look whether some are there, remove them and it, then run "
    "the job again"
)


@prepared
class WriteNote(msgspec.Struct, frozen=True):
    """What is in the file."""

    job: str
    stage: str
    format: str
    state: Literal["began", "failed", "done"]
    attempt: str
    """An id of one attempt alone: else two workers would write the same bytes, and each would take
    the note of the other for its own."""
    failure: str = ""


class WriteNotes:
    """The note of one job. Every method may raise UserError and Unavailable."""

    def __init__(self, location: Location, job: JobId) -> None:
        """`location`: of the task."""
        self._location = location / "writes"
        self._name = f"{path_name(job, 'the id of a job')}.json"

    @property
    def where(self) -> str:
        """The note, for messages."""
        return f"{self._location}/{self._name}"

    def read(self) -> bytes | None:
        """The note; None if there is none."""
        return self._location.read(self._name)

    def write(self, note: bytes, before: bytes | None) -> None:
        """Put it in the place of the one that was read.

        Raises Unavailable: another worker has written one meanwhile.
        """
        if not self._location.replace(self._name, note, before):
            raise Unavailable(
                f"{self.where}: another worker has begun to write the result meanwhile"
            )


def write_directly(
    request: StageRequest,
    location: Location,
    job: JobId,
    runner: StageRunner,
    timeout_s: float,
    watch: Watch,
    permit: Callable[[], None],
) -> None:
    """Run a stage over the parts of a job and have Spark write its result, unless that is done.

    Args:
        location: of the task.
        permit: see `DirectWrite`.

    Raises like `DirectWrite.run`.
    """
    write = DirectWrite(job, WriteNotes(location, job), permit)
    if not write.is_done():
        write.run(with_parts(request, location, job), runner, timeout_s, watch)


class DirectWrite(msgspec.Struct, frozen=True):
    """The write of one job by one worker."""

    job: JobId
    notes: WriteNotes
    permit: Callable[[], None]
    """Returns when this worker may publish; raises Fenced or Unavailable."""

    def is_done(self) -> bool:
        """Whether the write of this job has ended well."""
        note = self._decoded(self.notes.read())
        return note is not None and note.state == "done"

    def run(
        self, request: StageRequest, runner: StageRunner, timeout_s: float, watch: Watch
    ) -> None:
        """Run the stage and have Spark write its result; not if an earlier attempt may have written
        rows that would be doubled.

        Raises:
            FailsAgain: an earlier attempt is in doubt.
            UserFunctionError: the stage failed.
            Unavailable, Fenced: see `run_stage`.
        """
        found = self.notes.read()
        self._refuse_doubt(request, self._decoded(found))
        attempt, began = uuid.uuid4().hex, False

        def begin() -> None:
            nonlocal began, found
            self.permit()
            found = self._note(request, "began", attempt, found)
            began = True

        try:
            if any(frame.known for frame in request.frames):
                runner(request, timeout_s, Watch(watch.wanted, watch.seen, begin))
        except OnyxError as error:
            if began:
                self._note(request, "failed", attempt, found, str(error))
            raise
        self._note(request, "done", attempt, found)

    def _refuse_doubt(self, request: StageRequest, note: WriteNote | None) -> None:
        write = request.write
        if note is None or write.mode == "overwrite" or write.repeat:
            return
        why = f"an earlier attempt to write to {write.format} "
        why += f"failed: {note.failure}" if note.failure else "was ended in the middle"
        raise FailsAgain(
            f"{why}\nSome rows may be there, and `write.mode` is {write.mode}. Remove them and "
            f"{self.notes.where}, then run the job again; or say `write.repeat: true` if rows that "
            "come twice do no harm"
        )

    def _decoded(self, data: bytes | None) -> WriteNote | None:
        if data is None:
            return None
        note: WriteNote = stored(data, WriteNote, self.notes.where, _LOOK)
        return note

    def _note(
        self,
        request: StageRequest,
        state: Literal["began", "failed", "done"],
        attempt: str,
        before: bytes | None,
        failure: str = "",
    ) -> bytes:
        """Replace a note; the new one."""
        write = request.write.format
        note = WriteNote(self.job, request.stage, write, state, attempt, failure)
        data = msgspec.json.encode(note)
        self.notes.write(data, before)
        return data
