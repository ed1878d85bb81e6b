"""Parts in an object store: uploads that are completed to become visible, and aborted as a fence.

A part is uploaded under its final name by an S3 multipart upload, from which nobody sees anything
before it is completed, in one step. Every writer makes one mark below `.staging`, whose name begins
with its incarnation, once and never again. Beside it it notes the id of each upload before a byte
is sent, and before it completes the upload it looks whether the mark is still there. Whoever is
alive removes the marks of the dead and then aborts the uploads that their notes name (`fence`). So
an upload noted by then can never be completed, however late the request arrives, and one begun
later finds no mark: there is no moment in between, as with directories.

Notes, because some stores list uploads for whole keys only (MinIO). Rejected: copies of staged
objects (a copy that has begun survives the removal of its source), conditional writes (what keeps a
zombie out of a name has to lie there itself, for every reader to see).
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, cast

from onyx.errors import Fenced, OnyxError, UserError
from onyx.ids import GroupId
from onyx.objects.bucket import Bucket
from onyx.objects.connection import ObjectMissing
from onyx.objects.urls import ObjectUrl
from onyx.objects.writer import OBJECT_BYTES_MAX, ObjectWriter
from onyx.plugins.options import task_error
from onyx.plugins.parts.directory import STAGING, staging_name
from onyx.plugins.protocol import PluginContext, Token

_MARK = "writer"
_numbers = itertools.count()


class ObjectParts:
    """The parts of one task below one URL (`parts.stores.PartStore`)."""

    size_bytes_max = OBJECT_BYTES_MAX

    def __init__(self, url: ObjectUrl, context: PluginContext, staging: ObjectUrl | None = None):
        """`staging`: where marks and notes are kept, below `url` if not given."""
        self._url = url
        self._context = context
        self._task = (staging or url) / STAGING / staging_name(context)
        self._own: ObjectUrl | None = None

    def create(self, name: str) -> ObjectPart:
        """A part below the URL of the task."""
        return self.create_at(self._url / name)

    def create_at(self, url: ObjectUrl) -> ObjectPart:
        """A part that is to be elsewhere in the bucket, under the same fence."""
        with self.explained():
            own = self._own or self._marked()
        return ObjectPart(self._bucket(), url, own, self.explained)

    def finish(self, token: Token) -> None:
        """Of a part that is visible the store says that there is no such upload."""
        with self.explained(), contextlib.suppress(ObjectMissing):
            self._bucket().complete_upload(token["key"], token["upload"], token["tags"])

    def fence(self, live: Sequence[GroupId]) -> None:
        """Take the marks of all other incarnations away, then abort the uploads they noted."""
        keep = {str(incarnation) for incarnation in (*live, self._context.incarnation)}
        with self.explained():
            bucket = self._bucket()
            marks = [key for key in self._foreign(bucket, keep) if key.endswith(f"/{_MARK}")]
            for key in marks:
                bucket.delete(key)
            for key in self._foreign(bucket, keep):
                note = bucket.get(key)
                if note is not None and not key.endswith(f"/{_MARK}"):
                    bucket.abort_upload(*_upload_noted(note.data))
                bucket.delete(key)

    def close(self) -> None:
        """Parts have been dropped by now: what is left is the mark."""
        if self._own is not None:
            with contextlib.suppress(OnyxError):
                self._bucket().delete((self._own / _MARK).key)

    def _marked(self) -> ObjectUrl:
        self._own = own = self._task / f"{self._context.incarnation}.{next(_numbers)}"
        self._bucket().put((own / _MARK).key, b"")
        return own

    def _foreign(self, bucket: Bucket, keep: set[str]) -> list[str]:
        """Marks and notes of incarnations that are not to be kept."""
        prefix = f"{self._task.key}/"
        keys = [found.key for found in bucket.list(prefix)]
        return [key for key in keys if _incarnation(key.removeprefix(prefix)) not in keep]

    def _bucket(self) -> Bucket:
        with self.explained():
            return Bucket(self._url.bucket)

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of the store as those of this task."""
        context = self._context
        try:
            yield
        except ObjectMissing as error:
            raise Fenced(
                f"task {context.task!r}: {error}: an upload of incarnation {context.incarnation} "
                "was taken away, because it was declared dead (or somebody removed it)"
            ) from error
        except UserError as error:
            raise task_error(context, f"option 'path': {error}") from error


class ObjectPart:
    """An upload and its note (`parts.stores.StagedPart`)."""

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
        self._note = (staging / url.key.rpartition("/")[2]).key
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
        """Complete the upload. The mark is looked for just before: without it this writer is
        fenced, and an upload that was noted after the fence must not be completed."""
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
        note = json.dumps({"key": self._key, "upload": upload})
        self._bucket.put(self._note, note.encode())
        self._noted = True

    def _forget(self) -> None:
        """A note that stays behind names an upload that is no more, and is removed by a fence."""
        if self._noted:
            with contextlib.suppress(OnyxError):
                self._bucket.delete(self._note)


def published_at(url: ObjectUrl, bucket: Bucket, suffix: str) -> list[ObjectUrl]:
    """The visible parts below a URL, of all writers, in a stable order."""
    keys = (found.key for found in bucket.list((url / "part-").key))
    return [ObjectUrl(url.bucket, key) for key in keys if key.endswith(suffix)]


def _incarnation(name: str) -> str:
    """Of a mark or note, `<incarnation>.<number>/<what>`."""
    return name.partition("/")[0].rpartition(".")[0]


def _upload_noted(note: bytes) -> tuple[str, str]:
    """Key and id of an upload."""
    upload = json.loads(note)
    return upload["key"], upload["upload"]
