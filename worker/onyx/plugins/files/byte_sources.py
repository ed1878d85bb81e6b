"""The uncompressed bytes of a file, from any offset on.

Offsets count uncompressed bytes. A plain file is sought. A compressed file is read from its
start, so a replay costs as much as the first reading up to that byte. Rejected: an index of
offsets where decompression can start, because formats other than bz2 and xz have none.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePath
from typing import BinaryIO, Protocol

import pyarrow as pa

from onyx.errors import Unavailable, UserError
from onyx.plugins.files.options import COMPRESSED
from onyx.storage.files import FileSystem, system_errors

SKIP_BYTES = 1_048_576
"""Read at a time while looking for an offset in a compressed file."""
_DAMAGED = (
    *(EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError, UnicodeDecodeError),
    *(pa.ArrowInvalid, pa.ArrowIndexError, pa.ArrowNotImplementedError),
)


class ByteSource(Protocol):
    """What reading needs of a file object."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...


class FileBytes:
    """The uncompressed bytes of one file. Every error names it."""

    def __init__(self, path: str, offset: int, files: FileSystem) -> None:
        """Open `path` at `offset` bytes.

        Raises:
            Unavailable: it is not there, or cannot be read.
            UserError: it is damaged, or has become shorter than it was.
        """
        self._path = path
        self._offset = offset
        self._files = files
        self._open: _Opened | None = None
        self._opened()

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end of the file."""
        opened = self._opened()
        try:
            with named_errors(self._path):
                data = opened.source.read(size)
        except Unavailable:
            # The state of the decompressor is unknown now, so the next read opens the file anew.
            self.close()
            raise
        self._offset += len(data)
        return data

    def version(self) -> str | None:
        """Version of the file; None if it has none."""
        return self._files.version(self._path)

    def close(self) -> None:
        """Close the file; the next read opens it again at its offset."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()

    def _opened(self) -> _Opened:
        """Open at the offset; as it was, if it is open."""
        if self._open is None:
            file = self._files.open(self._path, ahead=True)
            opened = _Opened(file)
            try:
                with named_errors(self._path):
                    opened.begin(self._path)
                    self._seek(opened)
            except BaseException:
                opened.close()
                raise
            self._open = opened
        return self._open

    def _seek(self, opened: _Opened) -> None:
        left = self._offset
        if left and PurePath(self._path).suffix.lower() not in COMPRESSED:
            left -= opened.file.seek(min(left, opened.file.seek(0, io.SEEK_END)))
        while left > 0:
            skipped = len(opened.source.read(min(left, SKIP_BYTES)))
            if not skipped:
                raise UserError(
                    f"{self._path} has become shorter than {self._offset} bytes while a job was "
                    "reading it; files must not change before the job is complete"
                )
            left -= skipped


class _Opened:
    """A file and what uncompresses it."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.source: ByteSource = file

    def begin(self, path: str) -> None:
        self.source = _uncompressed(path, self.file)

    def close(self) -> None:
        try:
            self.source.close()
        finally:
            self.file.close()


@contextlib.contextmanager
def named_errors(path: str) -> Iterator[None]:
    """Errors of reading a file as ours: the system's pass away perhaps, damage does not."""
    try:
        with system_errors(path):
            try:
                yield
            except OSError as error:
                if error.errno is not None:
                    raise
                raise _damaged(path, error) from error
    except _DAMAGED as error:
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> UserError:
    return UserError(
        f"{path} is damaged or cut short: {error}; replace the file, or leave it out of the path"
    )


def _uncompressed(path: str, file: BinaryIO) -> ByteSource:
    match PurePath(path).suffix.lower():
        case ".gz":
            return gzip.GzipFile(fileobj=file)
        case ".bz2":
            return bz2.BZ2File(file)
        case ".xz":
            return lzma.LZMAFile(file)
        case ".zst":
            return pa.input_stream(file, compression="zstd")  # type: ignore[no-any-return]
        case ".zip":
            return _open_zip(path, file)
        case _:
            return file


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


def _open_zip(path: str, file: BinaryIO) -> ByteSource:
    archive = zipfile.ZipFile(file)
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
