"""Chunks as files of a directory that all workers of the cluster see.

A chunk is written to a temporary file, forced to disk, linked under its name, and the directory is
forced to disk. `link` fails when the name is there, on network file systems too; `rename` would
replace it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from onyx.durable import make_durable_directory, sync_directory
from onyx.errors import Unavailable, UserError
from onyx.state.interface import Stored

_TEMPORARY = "."
"""First character of names that are no chunks."""
_UNUSABLE = (
    errno.EACCES,
    errno.EEXIST,  # of a folder: its place is taken, by a link to nowhere for example
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class DirectoryStore:
    """A `ChunkStore` in a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, name: str, data: bytes) -> bool:
        path = self._root / name
        with _our_errors(path):
            if not path.parent.is_dir():
                make_durable_directory(path.parent)
            created = _linked(path, data) or path.read_bytes() == data
            sync_directory(path.parent)
        return created

    def read(self, name: str) -> bytes | None:
        path = self._root / name
        with _our_errors(path), contextlib.suppress(FileNotFoundError):
            return path.read_bytes()
        return None

    def list(self, prefix: str) -> list[Stored]:
        with _our_errors(self._root / prefix):
            return sorted(_files(self._root / prefix, prefix))

    def delete(self, name: str) -> None:
        path = self._root / name
        with _our_errors(path):
            path.unlink(missing_ok=True)
            for directory in path.parents:
                if directory == self._root:
                    break
                _remove_if_empty(directory)


def _linked(path: Path, data: bytes) -> bool:
    """Give a new file its name; False if the name is taken."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=_TEMPORARY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    return True


def _files(directory: Path, prefix: str) -> Iterator[Stored]:
    """Chunks below a directory, which may be changing."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(_TEMPORARY):
                continue
            if entry.is_dir():
                yield from _files(directory / entry.name, f"{prefix}{entry.name}/")
                continue
            with contextlib.suppress(FileNotFoundError):
                yield Stored(f"{prefix}{entry.name}", entry.stat().st_size)


def _remove_if_empty(directory: Path) -> None:
    """Remove a directory in which at most the temporary files of dead writers are left."""
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(directory)
        if all(name.startswith(_TEMPORARY) for name in names):
            for name in names:
                (directory / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody has just written
                directory.rmdir()


@contextlib.contextmanager
def _our_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"state cannot be kept in {path}: {error.strerror or error}"
        if error.errno in _UNUSABLE:
            raise UserError(
                f"{what}; set ONYX_STATE_URL of all workers to a folder that they share and may "
                "write, or to s3://bucket/prefix"
            ) from error
        if error.errno in _FULL:
            what = f"{what}; make room on the disk, and the job goes on"
        raise Unavailable(what) from error
