"""A file to write that becomes an object: nothing is visible before it is completed.

Its pieces are those of an S3 multipart upload. Any worker that knows the id of the upload can abort
it, and then it can never be completed. Rejected: libraries that hide the id, and conditional writes
of whole objects. Neither can be taken away from a writer that sleeps.

A piece that the store does not take stays in memory and is sent again, so an error loses nothing.

A writer puts a note of its upload, by which others abort what it has begun if it dies, before it
sends a byte, and goes on when the store has answered. So a note that is cut short was never
written: a careless store has kept what a writer had sent of it when that died, and nothing was
uploaded. Anything else in its place is an error, because what it should name could still be
completed.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from onyx.base.path_names import staged_name
from onyx.base.structs import UNREADABLE, prepared, stored
from onyx.errors import OnyxError
from onyx.storage.objects.bucket import Bucket
from onyx.storage.objects.connection import ObjectMissing
from onyx.storage.objects.urls import ObjectUrl

PIECE_BYTES = 8_388_608
"""A store takes 10,000 pieces of at least 5 MiB."""
OBJECT_BYTES_MAX = 9_000 * PIECE_BYTES


_BEGIN = b'{"key":'


class ObjectWriter(io.RawIOBase):
    """A writable file that becomes an object by `settle` and `complete`."""

    def __init__(self, bucket: Bucket, key: str, started: Callable[[str], None]) -> None:
        """Nothing is requested yet. `started` hears the upload's id before anything is sent."""
        self._bucket = bucket
        self._key = key
        self._started = started
        self._upload: str | None = None
        self._tags: list[str] = []
        self._waiting = bytearray()
        self._length = 0
        self._failing = False

    def writable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Bytes written, sent or not."""
        return self._length

    def write(self, data: Any, /) -> int:
        """Take all of it. An encoder could not repeat this call, so the next `make_room` or
        `settle` raises a failure to send."""
        size = memoryview(data).nbytes
        self._waiting += data
        self._length += size
        if not self._failing:
            with contextlib.suppress(OnyxError):
                self.make_room()
        return size

    def make_room(self) -> None:
        """Send whole pieces; less than one is in memory afterwards.

        Raises:
            ObjectMissing: the upload was aborted.
            UserError, Unavailable: as everything of `Bucket`.
        """
        self._failing = True
        while len(self._waiting) >= PIECE_BYTES:
            self._send(PIECE_BYTES)
        self._failing = False

    def settle(self) -> None:
        """Send everything: from now on it is durable. Raises like `make_room`."""
        self.make_room()
        if self._waiting or not self._tags:
            self._send(len(self._waiting))

    def upload(self) -> dict[str, Any]:
        """Once settled: id and tags, with which anybody can complete it."""
        return {"upload": self._start(), "tags": list(self._tags)}

    def complete(self) -> None:
        """Make the object visible; may be repeated. Its key must be nobody else's.

        Raises:
            ObjectMissing: the upload was aborted.
            UserError, Unavailable: as everything of `Bucket`.
        """
        complete(self._bucket, self._key, self._start(), self._tags)

    def abort(self) -> None:
        """Give the upload up, if it was begun."""
        self._waiting.clear()
        if self._upload is not None:
            self._bucket.abort_upload(self._key, self._upload)

    def _start(self) -> str:
        """The id of the upload, begun now if it was not yet."""
        if self._upload is None:
            upload = self._bucket.start_upload(self._key)
            self._started(upload)
            self._upload = upload
        return self._upload

    def _send(self, size_bytes: int) -> None:
        upload = self._start()
        data = bytes(self._waiting[:size_bytes])
        number = len(self._tags) + 1
        self._tags.append(self._bucket.upload(self._key, upload, number, data))
        del self._waiting[:size_bytes]


def complete(bucket: Bucket, key: str, upload: str, tags: Sequence[str]) -> None:
    """Make the object of an upload visible. See `ObjectWriter.complete`."""
    try:
        bucket.complete_upload(key, upload, tags)
    except ObjectMissing:
        # Also the answer to a repeat whose first reply was lost.
        if bucket.look(key) is None:
            raise


@prepared
class UploadNote(msgspec.Struct, frozen=True):
    """What is in a note."""

    key: str
    upload: str
    """Its id."""


def note_of(folder: ObjectUrl, key: str) -> ObjectUrl:
    """Where the upload of an object is noted, in a folder of notes."""
    return folder / staged_name(key.rpartition("/")[2])


def encode_note(key: str, upload: str) -> bytes:
    """The bytes of a note."""
    return msgspec.json.encode(UploadNote(key, upload))


def decode_note(url: ObjectUrl, data: bytes) -> UploadNote | None:
    """A note; None if it was never written. Raises StateError: it is something else."""
    if data[: len(_BEGIN)] == _BEGIN[: len(data)] and not _is_json(data):
        return None
    remedy = "abort the uploads of this task that are left in the bucket, and remove the note"
    note: UploadNote = stored(data, UploadNote, f"the note of an upload, {url},", remedy)
    return note


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except UNREADABLE:
        return False
    return True
