"""Parts in an object store. Completing an upload publishes a part, aborting it is the fence.

A part is an S3 multipart upload under its final name: nothing of it is visible before it is
completed, which is one step. Each writer has one *mark* below `.staging`, named after its
incarnation, written once and never again. Beside the mark it writes a *note* with the id of each
upload before it sends a byte. Before it completes an upload it checks that its mark exists. A live
peer removes the marks of dead incarnations, and then aborts the uploads that their notes name
(`fence`).

Invariant: `fence` removes marks before it lists notes. An upload whose note it finds is aborted and
can never be completed, however late the request arrives. An upload whose note comes later finds no
mark. So no upload escapes both.

Notes are needed because some stores list uploads only for whole keys (MinIO). Rejected: copies
of staged objects (a copy that has begun survives the removal of its source), and conditional
writes (an object that keeps a zombie from a name would have to stay there, visible to every
reader).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, cast

from onyx.base.path_names import staged_begin
from onyx.errors import Fenced, OnyxError, UserError
from onyx.ids import GroupId
from onyx.storage.objects.bucket import Bucket
from onyx.storage.objects.connection import ObjectMissing
from onyx.storage.objects.urls import ObjectUrl
from onyx.storage.objects.writer import (
    OBJECT_BYTES_MAX,
    ObjectWriter,
    complete,
    decode_note,
    encode_note,
    note_of,
)
from onyx.storage.staging.interface import STAGING, Token, Writer

_MARK = "writer"
_numbers = itertools.count()


class ObjectParts:
    """The parts of one task below one URL (`staging.interface.PartStore`)."""

    size_bytes_max = OBJECT_BYTES_MAX

    def __init__(self, url: ObjectUrl, writer: Writer) -> None:
        self._url = url
        self._writer = writer
        self._task = url / STAGING / writer.folder
        self._own: ObjectUrl | None = None

    def create(self, name: str) -> ObjectPart:
        """A part below the URL of the task."""
        return ObjectPart(self._bucket(), self._url / name, self.notes, self.explained)

    @property
    def notes(self) -> ObjectUrl:
        """Where whoever stages for this writer, as executors of Spark do, notes each upload before
        it sends a byte (`objects.writer.UploadNote`)."""
        with self.explained():
            return self._own or self._marked()

    def complete(self, tokens: Iterable[Token]) -> None:
        """Publish what was staged for this writer, each if the mark exists: see the invariant."""
        notes = self.notes
        with self.explained():
            bucket = self._bucket()
            for token in tokens:
                if bucket.look((notes / _MARK).key) is None:
                    raise ObjectMissing(f"{notes / _MARK} is not there")
                complete(bucket, token["key"], token["upload"], token["tags"])
                bucket.delete(note_of(notes, token["key"]).key)

    def abandon(self, names: str) -> None:
        """Abort what was staged for this writer and not completed, as far as that is possible now.

        Args:
            names: how the last names of their keys begin.
        """
        if self._own is not None:
            begun = staged_begin(names)
            with contextlib.suppress(OnyxError):
                bucket = self._bucket()
                self._abort(bucket, [found.key for found in bucket.list((self._own / begun).key)])

    def finish(self, token: Token) -> None:
        """Complete the upload. For a published part the store answers that there is none."""
        with self.explained():
            bucket, key = self._bucket(), token["key"]
            try:
                bucket.complete_upload(key, token["upload"], token["tags"])
            except ObjectMissing:
                if bucket.look(key) is None:
                    self._writer.note_missing(key)

    def sync(self) -> None:
        """An upload that is complete is durable."""

    def fence(self, live: Sequence[GroupId]) -> None:
        """Remove the marks of all other incarnations, then abort the uploads that they noted."""
        keep = {str(incarnation) for incarnation in (*live, self._writer.incarnation)}
        with self.explained():
            bucket = self._bucket()
            marks = [key for key in self._foreign(bucket, keep) if key.endswith(f"/{_MARK}")]
            for key in marks:
                bucket.delete(key)
            # Listed anew, now that no mark is there: notes that were written meanwhile are among
            # these, and an upload whose note comes later finds no mark.
            self._abort(bucket, self._foreign(bucket, keep))

    def sweep(self) -> None:
        """Abort what writers that are named like this one have left, and remove their marks."""
        with self.explained():
            bucket = self._bucket()
            ours = f"{self._task.key}/{self._writer.name}"
            self._abort(bucket, [found.key for found in bucket.list(ours)])

    def close(self) -> None:
        """Parts have been dropped by now: what is left is the mark."""
        if self._own is not None:
            with contextlib.suppress(OnyxError):
                self._bucket().delete((self._own / _MARK).key)

    def _marked(self) -> ObjectUrl:
        self._own = own = self._task / f"{self._writer.name}{next(_numbers)}"
        self._bucket().put((own / _MARK).key, b"")
        return own

    def _foreign(self, bucket: Bucket, keep: set[str]) -> list[str]:
        """Marks and notes of incarnations that are not to be kept."""
        prefix = f"{self._task.key}/"
        keys = [found.key for found in bucket.list(prefix)]
        return [key for key in keys if _incarnation(key.removeprefix(prefix)) not in keep]

    def _abort(self, bucket: Bucket, keys: Sequence[str]) -> None:
        """Abort the uploads of these notes, and remove notes and marks."""
        for key in keys:
            found = None if key.endswith(f"/{_MARK}") else bucket.get(key)
            if found is not None:
                note = decode_note(ObjectUrl(self._url.bucket, key), found.data)
                if note is not None:
                    # Before its note: if this stops in between, the next fence finds the note.
                    bucket.abort_upload(note.key, note.upload)
            bucket.delete(key)

    def _bucket(self) -> Bucket:
        with self.explained():
            return Bucket(self._url.bucket)

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raises errors of the store as errors of this task."""
        writer = self._writer
        try:
            yield
        except ObjectMissing as error:
            raise Fenced(
                f"task {writer.task!r}: {error}: an upload of incarnation {writer.incarnation} "
                "was taken away, because it was declared dead (or somebody removed it)"
            ) from error
        except UserError as error:
            raise writer.error(f"option 'path': {error}") from error


class ObjectPart:
    """An upload and its note (`staging.interface.StagedPart`)."""

    def __init__(
        self,
        bucket: Bucket,
        url: ObjectUrl,
        staging: ObjectUrl,
        explained: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._bucket = bucket
        self._key = url.key
        self._mark = (staging / _MARK).key
        self._note = note_of(staging, url.key).key
        self._noted = False
        self.explained = explained
        self._writer = ObjectWriter(bucket, url.key, self._take_note)
        self.file = cast(BinaryIO, self._writer)

    def make_room(self) -> None:
        """Send whole pieces of the upload."""
        with self._dropped_if_fenced():
            self._writer.make_room()

    def settle(self) -> None:
        """Send all pieces."""
        with self._dropped_if_fenced():
            self._writer.settle()

    def publish(self) -> None:
        """Complete the upload, if the mark exists: see the module's invariant."""
        with self._dropped_if_fenced():
            if self._bucket.look(self._mark) is None:
                raise ObjectMissing(f"{self._mark} is not there")
            self._writer.complete()
        self._forget()

    def token(self) -> Token:
        """Key, id and tags of the upload."""
        return {"key": self._key, **self._writer.upload()}

    def drop(self) -> None:
        """Abort the upload and remove its note."""
        with contextlib.suppress(OnyxError):
            self._writer.abort()
            self._forget()

    @contextlib.contextmanager
    def _dropped_if_fenced(self) -> Iterator[None]:
        with self.explained():
            try:
                yield
            except ObjectMissing:
                self.drop()
                raise

    def _take_note(self, upload: str) -> None:
        self._bucket.put(self._note, encode_note(self._key, upload))
        self._noted = True

    def _forget(self) -> None:
        """A note that stays behind names an upload that is no more, and is removed by a fence."""
        if self._noted:
            with contextlib.suppress(OnyxError):
                self._bucket.delete(self._note)


def _incarnation(name: str) -> str:
    """The incarnation of a mark or note, `<incarnation>.<number>/<what>`."""
    return name.partition("/")[0].rpartition(".")[0]
