"""An object as a file to read: by ranges, a block ahead, of one version.

A task reads all of its partitions in turn, so as many blocks are in memory as it has objects open;
they share one allowance. A block grows while it is read in order, so that a look at the start of
many objects costs little. A stream held open across reads was rejected: stores end connections that
idle behind back-pressure.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from onyx.errors import UserError
from onyx.storage.objects.bucket import Bucket
from onyx.storage.objects.connection import ConditionFailed, ObjectMissing, RangeMissing
from onyx.storage.objects.urls import ObjectUrl

AHEAD_BYTES_MAX = 67_108_864
"""Bytes read ahead of all objects that one task has open."""
BLOCK_BYTES_MAX = 8_388_608
BLOCK_BYTES_MIN = 65_536
FIRST_BLOCK_BYTES = 262_144
WHOLE_BYTES_MAX = 16_777_216
"""An object of this size is read at once."""


class Allowance:
    """How far ahead the objects of one task may be read, shared by those that are open."""

    def __init__(self) -> None:
        self.open = 0

    def block_bytes(self) -> int:
        """Size of the next range."""
        share = AHEAD_BYTES_MAX // max(1, self.open)
        return max(BLOCK_BYTES_MIN, min(BLOCK_BYTES_MAX, share))


class ObjectFile(io.RawIOBase):
    """A readable, seekable file over one object."""

    def __init__(
        self,
        bucket: Bucket,
        url: ObjectUrl,
        versions: dict[str, str],
        allowance: Allowance | None = None,
    ) -> None:
        """Nothing is requested yet.

        Args:
            versions: known versions by key: another one is an error, the first seen is added.
            allowance: shared with other objects; None reads exactly what is asked for.
        """
        self._bucket = bucket
        self._url = url
        self._versions = versions
        self._allowance = allowance
        self._position = 0
        self._size: int | None = None
        self._block = b""
        self._block_at = 0
        self._next_bytes = FIRST_BLOCK_BYTES
        if allowance:
            allowance.open += 1

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Offset of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move without a request, but for the first from the end."""
        if whence == io.SEEK_END:
            offset += self._known_size()
        elif whence == io.SEEK_CUR:
            offset += self._position
        self._position = max(0, offset)
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """Exactly `size` bytes unless the object ends before.

        Raises:
            UserError: the object has changed or gone, or may not be read.
            Unavailable: the store cannot be reached; the same read may be tried again.
        """
        if size < 0:
            size = max(0, self._known_size() - self._position)
        found = self._from_block(size)
        if len(found) == size:
            return found
        pieces = [found]
        left = size - len(found)
        position = self._position + len(found)
        while left > 0 and (self._size is None or position < self._size):
            self._fetch(position, left)
            piece = self._block[:left]
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
            position += len(piece)
        self._position = position
        if self._allowance is None:
            self._block = b""
        return b"".join(pieces)

    def readinto(self, buffer: Any, /) -> int:
        """The bytes as `read`, into a buffer."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Drop what was read ahead."""
        if self._allowance and not self.closed:
            self._allowance.open -= 1
        self._block = b""
        super().close()

    def _from_block(self, size: int) -> bytes:
        """What the block has, without a request; moves on only if that is all."""
        start = self._position - self._block_at
        if start < 0:
            return b""
        found = self._block[start : start + size]
        if len(found) == size:
            self._position += size
        return found

    def _fetch(self, position: int, wanted: int) -> None:
        """Have a block that begins at `position`; an empty one at the end."""
        ahead = 0
        if self._allowance:
            ahead = min(self._next_bytes, self._allowance.block_bytes())
            self._next_bytes *= 2
        key = self._url.key
        try:
            with _changes_explained(self._url):
                version = self._versions.get(key)
                piece = self._bucket.read(key, position, max(wanted, ahead), version)
        except RangeMissing:
            self._known_size()
            self._block, self._block_at = b"", position
            return
        self._seen(piece.version, piece.size_bytes)
        self._block, self._block_at = piece.data, position

    def _known_size(self) -> int:
        if self._size is None:
            with _changes_explained(self._url):
                found = self._bucket.look(self._url.key)
                if found is None:
                    raise ObjectMissing(f"{self._url} is not there")
                if self._versions.get(self._url.key, found.version) != found.version:
                    raise ConditionFailed(f"{self._url} has changed")
            self._seen(found.version, found.size_bytes)
            return found.size_bytes
        return self._size

    def _seen(self, version: str, size: int) -> None:
        self._versions.setdefault(self._url.key, version)
        self._size = size


def opened_object(url: ObjectUrl) -> BinaryIO:
    """A small object in memory; a large one, to be read by ranges.

    Raises:
        UserError: it is gone, or may not be read.
        Unavailable: the store cannot be reached.
    """
    bucket = Bucket(url.bucket)
    found = bucket.look(url.key)
    if found is None:
        raise UserError(f"{url} is gone: somebody has removed it, or a rule of the bucket")
    file = ObjectFile(bucket, url, {url.key: found.version})
    if found.size_bytes > WHOLE_BYTES_MAX:
        return cast(BinaryIO, file)
    with file:
        return io.BytesIO(file.read())


@contextlib.contextmanager
def _changes_explained(url: ObjectUrl) -> Iterator[None]:
    """A changed or removed object, said to whoever runs the job."""
    try:
        yield
    except (ConditionFailed, ObjectMissing) as error:
        what = "was removed" if isinstance(error, ObjectMissing) else "has changed"
        raise UserError(
            f"{url} {what} while a job was reading it; files must not change before the job is "
            "complete"
        ) from error
