"""Parts in an object store: uploads that are completed to become visible, and aborted as a fence.

A part is uploaded under its final name by an S3 multipart upload, from which nobody sees anything
before it is completed, in one step. The id of each upload is noted below `.staging`, under the
incarnation of its writer, before a byte is sent. Whoever is alive aborts the uploads that the notes
of the dead name (`fence`): completing them fails then, however late the request arrives. What a
zombie begins after that it never completes, because it asks for permission after it has noted the
upload, and others fence only when that permission has run out.

So notes, not the listing of uploads, which some stores give for whole keys only (MinIO). Rejected:
copies of staged objects (a copy that has begun survives the removal of its source), conditional
writes (what keeps a zombie out of a name has to lie there itself, for every reader to see).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, cast

from onyx.errors import Fenced, OnyxError, Unavailable, UserError
from onyx.ids import GroupId
from onyx.objects.bucket import Bucket
from onyx.objects.connection import ObjectMissing
from onyx.objects.urls import ObjectUrl
from onyx.objects.writer import OBJECT_BYTES_MAX, ObjectWriter
from onyx.plugins.directory_parts import STAGING
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext


class ObjectParts:
    """The parts of one task below one URL (`parts.PartsPlace`)."""

    size_bytes_max = OBJECT_BYTES_MAX

    def __init__(self, url: ObjectUrl, context: PluginContext, staging: ObjectUrl | None = None):
        """`staging`: where notes are kept, below `url` if not given."""
        self._url = url
        self._context = context
        self._task = (staging or url) / STAGING / f"{context.job}.{context.task}"

    def create(self, name: str) -> ObjectPart:
        note = self._task / str(self._context.incarnation) / name
        return ObjectPart(self._bucket(), self._url / name, note, self._told)

    def fence(self, live: Sequence[GroupId]) -> None:
        """Abort the uploads that all other incarnations have noted."""
        keep = {str(incarnation) for incarnation in (*live, self._context.incarnation)}
        prefix = f"{self._task.key}/"
        with self._told():
            bucket = self._bucket()
            for found in bucket.list(prefix):
                incarnation, _, _ = found.key.removeprefix(prefix).partition("/")
                note = bucket.get(found.key) if incarnation not in keep else None
                if note is not None:
                    bucket.abort_upload(*_upload_noted(note.data))
                    bucket.delete(found.key)

    def explained(self, error: OSError) -> OnyxError:
        return Unavailable(f"task {self._context.task!r}: {self._url}: {error}")

    def close(self) -> None:
        """Each part has been dropped by now."""

    def _bucket(self) -> Bucket:
        with self._told():
            return Bucket(self._url.bucket)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the store as those of this task."""
        context = self._context
        try:
            yield
        except ObjectMissing as error:
            raise Fenced(
                f"task {context.task!r}: {error}: an upload of incarnation {context.incarnation} "
                "was aborted, because it was declared dead (or somebody removed it)"
            ) from error
        except UserError as error:
            raise task_error(context, f"option 'path': {error}") from error


class ObjectPart:
    """An upload and its note (`parts.StagedPart`)."""

    def __init__(
        self,
        bucket: Bucket,
        url: ObjectUrl,
        note: ObjectUrl,
        told: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._bucket = bucket
        self._key = url.key
        self._note = note.key
        self._noted = False
        self._told = told
        self._writer = ObjectWriter(bucket, url.key, self._take_note)
        self.file = cast(BinaryIO, self._writer)

    def make_room(self) -> None:
        with self._told():
            self._writer.make_room()

    def settle(self) -> None:
        with self._told():
            self._writer.settle()

    def publish(self) -> None:
        with self._told():
            self._writer.complete()
        self._forget()

    def drop(self) -> None:
        with contextlib.suppress(OnyxError):
            self._writer.abort()
            self._forget()

    def _take_note(self, upload: str) -> None:
        note = json.dumps({"key": self._key, "upload": upload})
        self._bucket.put(self._note, note.encode())
        self._noted = True

    def _forget(self) -> None:
        """A note that stays behind names an upload that is no more, and is removed by a fence."""
        if self._noted:
            with contextlib.suppress(OnyxError):
                self._bucket.delete(self._note)


def published_objects(bucket: Bucket, url: ObjectUrl, suffix: str) -> list[ObjectUrl]:
    """The visible parts below a URL, in a stable order."""
    start = (url / "part-").key
    found = (each.key for each in bucket.list(start))
    return [ObjectUrl(url.bucket, key) for key in found if key.endswith(suffix)]


def _upload_noted(note: bytes) -> tuple[str, str]:
    """Key and id of an upload."""
    told = json.loads(note)
    return told["key"], told["upload"]
