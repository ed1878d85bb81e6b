"""The bytes of a file, whatever it is compressed with, from any offset on.

Offsets are those of the uncompressed bytes. A plain file is sought; a compressed one has to be
read from its start, so reading it again after a crash costs that much. An index of the places where
decompression could start was rejected: it would be as large as the files are many, and formats
other than bz2 and xz have no such places.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Protocol

import pyarrow as pa

from onyx.errors import Unavailable, UserError

SKIP_BYTES = 1_048_576
"""Read at a time while looking for an offset in a compressed file."""
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, pa.ArrowInvalid, RuntimeError)


class ByteSource(Protocol):
    """What reading needs of a file object."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class FileBytes:
    """The uncompressed bytes of one file. Every error names it."""

    def __init__(self, path: str, offset: int) -> None:
        """Open `path` at `offset` bytes.

        Raises:
            Unavailable: it is not there, or cannot be read.
            UserError: it is damaged, or has become shorter than it was.
        """
        self._path = path
        with named_errors(path):
            self._source = _open(path)
        try:
            self._seek(offset)
        except BaseException:
            self.close()
            raise

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end of the file."""
        with named_errors(self._path):
            return self._source.read(size)

    def close(self) -> None:
        self._source.close()

    def _seek(self, offset: int) -> None:
        left = offset
        if PurePath(self._path).suffix.lower() not in COMPRESSED and offset:
            with named_errors(self._path):
                size = os.path.getsize(self._path)
                plain: Any = self._source
                left -= plain.seek(min(offset, size))
        while left > 0:
            skipped = len(self.read(min(left, SKIP_BYTES)))
            if not skipped:
                raise UserError(
                    f"{self._path} has become shorter than {offset} bytes while a job was reading "
                    "it; files must not change before the job is complete"
                )
            left -= skipped


@contextlib.contextmanager
def named_errors(path: str) -> Iterator[None]:
    """Errors of reading a file as ours: the system's pass away perhaps, damage does not."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise _damaged(path, error) from error
        raise Unavailable(
            f"{path} cannot be read here: {error.strerror}; every worker that may run the task "
            "must see the same files"
        ) from error
    except _DAMAGED as error:
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> UserError:
    return UserError(
        f"{path} is damaged or cut short: {error}; replace the file, or leave it out of the path"
    )


def _open(path: str) -> ByteSource:
    match PurePath(path).suffix.lower():
        case ".gz":
            return gzip.open(path)
        case ".bz2":
            return bz2.open(path)
        case ".xz":
            return lzma.open(path)
        case ".zst":
            return pa.input_stream(path, compression="zstd")  # type: ignore[no-any-return]
        case ".zip":
            return _open_zip(path)
        case _:
            return open(path, "rb", buffering=0)


class _ZipMember:
    """The only file of an archive."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive = archive
        self._member = archive.open(name)

    def read(self, size: int) -> bytes:
        return self._member.read(size)

    def close(self) -> None:
        self._member.close()
        self._archive.close()


def _open_zip(path: str) -> ByteSource:
    archive = zipfile.ZipFile(path)
    try:
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
        if len(names) != 1:
            raise UserError(
                f"{path} holds {len(names)} files; only an archive of exactly one can be read"
            )
        return _ZipMember(archive, names[0])
    except BaseException:
        archive.close()
        raise
