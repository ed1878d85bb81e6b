"""A file of this machine that must not change while a job reads it.

Positions are stable only if the file is. So a file has a fingerprint: its size and a digest of that
many bytes from its start. The fingerprint is stored with the frontier, and every later reader
compares it. While the file is open, a new modification time triggers the comparison.

A file that grows keeps its fingerprint, because the bytes that it covers are unchanged. The
digest of a large file covers samples only, since all of it would have to be read twice; so a
large file with a new modification time and the same size is refused. The fingerprint has no
times: copies of a file on several machines differ in them.
"""

from __future__ import annotations

import hashlib
import io
import os

from onyx.errors import UserError

WHOLE_BYTES = 1_048_576
"""A file up to this size is in the digest with all of its bytes."""
SAMPLES = 64
SAMPLE_BYTES = 16_384


class LocalFile(io.FileIO):
    """An open file; reading raises UserError when it has changed, OSError like any other."""

    def __init__(self, path: str, versions: dict[str, str]) -> None:
        """`versions`: known fingerprints by path; another one is an error, the first is added."""
        super().__init__(path, "rb")
        self._path = path
        self._versions = versions
        try:
            status = os.fstat(self.fileno())
            self._modified_ns = status.st_mtime_ns
            if path in versions:
                self._compare(versions[path], status.st_size)
            else:
                versions[path] = fingerprint(self.fileno(), status.st_size)
        except BaseException:
            self.close()
            raise

    def read(self, size: int | None = -1, /) -> bytes:
        """The bytes. Raises UserError when the file has changed."""
        data = super().read(size)
        self._look()
        return data or b""

    def readinto(self, buffer: object, /) -> int:
        """The bytes as `read`, into a buffer."""
        count = super().readinto(buffer)  # type: ignore[arg-type]
        self._look()
        return count or 0

    def _look(self) -> None:
        """What was read is from before a change, or the change touches nothing that was there."""
        status = os.fstat(self.fileno())
        if status.st_mtime_ns == self._modified_ns:
            return
        before = self._versions[self._path]
        self._compare(before, status.st_size)
        known_bytes = _size(before)
        if status.st_size == known_bytes > WHOLE_BYTES:
            raise self._changed("has changed")
        self._modified_ns = status.st_mtime_ns
        if status.st_size > known_bytes:
            self._versions[self._path] = fingerprint(self.fileno(), status.st_size)

    def _compare(self, version: str, size_bytes: int) -> None:
        known_bytes = _size(version)
        if size_bytes < known_bytes:
            raise self._changed(f"was cut from {known_bytes:,} to {size_bytes:,} bytes")
        if fingerprint(self.fileno(), known_bytes) != version:
            raise self._changed("has changed, or another file has its name now")

    def _changed(self, how: str) -> UserError:
        return UserError(
            f"{self._path} {how} while a job was reading it; files must not change before the job "
            "is complete. Put the old file back and submit the job again, or give new data a new "
            "name"
        )


def fingerprint(descriptor: int, size_bytes: int) -> str:
    """A fingerprint of the first so many bytes of an open file."""
    digest = hashlib.blake2b(digest_size=8)
    if size_bytes <= WHOLE_BYTES:
        digest.update(_bytes(descriptor, 0, size_bytes))
    else:
        last = size_bytes - SAMPLE_BYTES
        for number in range(SAMPLES):
            digest.update(_bytes(descriptor, last * number // (SAMPLES - 1), SAMPLE_BYTES))
    return f"{size_bytes}-{digest.hexdigest()}"


def _size(version: str) -> int:
    return int(version.partition("-")[0])


def _bytes(descriptor: int, offset: int, size_bytes: int) -> bytes:
    pieces = []
    while size_bytes > 0 and (piece := os.pread(descriptor, size_bytes, offset)):
        pieces.append(piece)
        offset += len(piece)
        size_bytes -= len(piece)
    return b"".join(pieces)
