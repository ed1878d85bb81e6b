"""Direct writes: Spark itself publishes, to a database or whatever a format leads to.

    <path>/writes/<job>.json   what is known of the write of a job

Such a write has no fence and cannot be undone, so it is noted twice. The first note is written by
the worker when all is ready and it may still publish, and only then Spark begins. The last one is
written when Spark has ended. Who finds the last note does nothing. Who finds only the first one
knows that rows may have been written: it overwrites, or refuses unless the job says `repeat`.
Between the end of the write and its note lies an instant in which a crash leaves it in doubt.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from onyx.errors import FailsAgain, OnyxError, Unavailable, UserError
from onyx.ids import JobId
from onyx.path_names import path_name
from onyx.spark.child.request import StageRequest, StageRunner, Watch
from onyx.storage.durable import make_durable_directory, sync_directory
from onyx.storage.objects.bucket import Bucket, only_if
from onyx.storage.objects.connection import ConditionFailed, ObjectMissing
from onyx.storage.objects.urls import ObjectUrl
from onyx.structs import prepared


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


class WriteNotes(Protocol):
    """The note of one job. Every method may raise OSError, UserError and Unavailable."""

    @property
    def where(self) -> object:
        """For messages."""
        ...

    def read(self) -> bytes | None:
        """The note; None if there is none."""
        ...

    def write(self, note: bytes, before: bytes | None) -> None:
        """Put it in the place of the one that was read.

        Raises Unavailable: another worker has written one meanwhile.
        """
        ...


class DirectoryWriteNotes:
    """The note of one job."""

    def __init__(self, path: Path, job: JobId) -> None:
        self.where = path / "writes" / f"{path_name(job, 'the id of a job')}.json"

    def read(self) -> bytes | None:
        """The note; None if there is none."""
        try:
            return self.where.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, note: bytes, before: bytes | None) -> None:
        """The first note is a new name, which only one worker can make."""
        if self.read() != before:
            raise _taken(self.where)
        make_durable_directory(self.where.parent)
        unfinished = self.where.parent / f".{uuid.uuid4().hex}"
        try:
            with unfinished.open("xb") as file:
                file.write(note)
                file.flush()
                os.fsync(file.fileno())
            if before is None:
                os.link(unfinished, self.where)
            else:
                unfinished.replace(self.where)
        except FileExistsError as error:
            raise _taken(self.where) from error
        finally:
            unfinished.unlink(missing_ok=True)
        sync_directory(self.where.parent)


class ObjectWriteNotes:
    """The note of one job."""

    def __init__(self, url: ObjectUrl, job: JobId) -> None:
        self.where = url / "writes" / f"{path_name(job, 'the id of a job')}.json"

    def read(self) -> bytes | None:
        """The note; None if there is none."""
        found = Bucket(self.where.bucket).get(self.where.key)
        return found.data if found else None

    def write(self, note: bytes, before: bytes | None) -> None:
        """Put it in the place of the one that was read."""
        bucket = Bucket(self.where.bucket)
        found = bucket.get(self.where.key)
        if (found.data if found else None) != before:
            raise _taken(self.where)
        try:
            bucket.put(self.where.key, note, only_if(found))
        except (ConditionFailed, ObjectMissing) as error:
            raise _taken(self.where) from error


@dataclass(frozen=True, slots=True)
class DirectWrite:
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
        try:
            return msgspec.json.decode(data, type=WriteNote) if data else None
        except msgspec.DecodeError as error:
            raise UserError(f"{self.notes.where} is damaged: {error}") from error

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


def _taken(where: object) -> Unavailable:
    return Unavailable(f"{where}: another worker has begun to write the result meanwhile")
