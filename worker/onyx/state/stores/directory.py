"""Chunks as files of a directory that all workers of the cluster see.

A chunk is written to a temporary file, forced to disk, linked under its name, and the directory is
forced to disk. `link` fails when the name is there, on network file systems too; `rename` would
replace it. Nothing outside of the directory is ever touched, whatever names and links there are
(`rooted`), and nobody else may read it unless a setting says so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from onyx.durable import make_durable_directory
from onyx.errors import Unavailable, UserError
from onyx.path_names import is_path_name, path_of_names
from onyx.rooted import opened
from onyx.state.stores.interface import Stored

_TEMPORARY = "."
"""First character of the names of files that are being written."""
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


class Modes(NamedTuple):
    """What folders and files that are made allow, and to whom."""

    folder: int
    file: int


PRIVATE = Modes(0o700, 0o600)
GROUP = Modes(0o770, 0o640)
"""For workers of different users of one group: each may add and remove, nobody changes."""


class DirectoryStore:
    """A `ChunkStore` in a directory."""

    def __init__(self, root: Path, modes: Modes = PRIVATE) -> None:
        self._root = root
        self._modes = modes

    def create(self, name: str, data: bytes) -> bool:
        """Write `data` under a name that nobody has written."""
        *folders, file = _parts(name)
        with _our_errors(self._root / name):
            make_durable_directory(self._root, self._modes.folder)
            with opened(self._root, folders, self._modes.folder) as folder:
                created = _linked(folder, file, data, self._modes.file)
                created = created or _content(folder, file) == data
                os.fsync(folder)
        return created

    def read(self, name: str) -> bytes | None:
        """All bytes, or None when there is nothing of this name."""
        *folders, file = _parts(name)
        with (
            _our_errors(self._root / name),
            contextlib.suppress(FileNotFoundError),
            opened(self._root, folders) as folder,
        ):
            return _content(folder, file)
        return None

    def list(self, prefix: str) -> list[Stored]:
        """All whose names begin with `prefix`, which ends with `/`, in the order of their names."""
        folders = _parts(prefix.removesuffix("/"))
        found: list[Stored] = []
        with (
            _our_errors(self._root / prefix),
            contextlib.suppress(FileNotFoundError),
            opened(self._root, folders) as folder,
        ):
            found.extend(_files(folder, prefix))
        return sorted(found)

    def delete(self, name: str) -> None:
        """Remove it; nothing happens when it is not there."""
        *folders, file = _parts(name)
        with _our_errors(self._root / name), contextlib.suppress(FileNotFoundError):
            with opened(self._root, folders) as folder:
                _unlink(folder, file)
            while folders:
                *folders, last = folders
                with opened(self._root, folders) as folder:
                    _remove_if_empty(folder, last)

    def remove_folder(self, name: str) -> None:
        """Remove a folder that others than this store have filled, whatever is in it."""
        *folders, last = _parts(name)
        with (
            _our_errors(self._root / name),
            contextlib.suppress(FileNotFoundError),
            opened(self._root, folders) as folder,
        ):
            shutil.rmtree(last, ignore_errors=True, dir_fd=folder)


def _parts(name: str) -> list[str]:
    return path_of_names(name, "the name of a chunk")


def _linked(folder: int, name: str, data: bytes, mode: int) -> bool:
    """Give a new file its name; False if the name is taken."""
    temporary = f"{_TEMPORARY}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
        try:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary, dir_fd=folder)
    return True


def _content(folder: int, name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def _files(folder: int, prefix: str) -> Iterator[Stored]:
    """Chunks below an open folder, which may be changing; what is no chunk is left out."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not is_path_name(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError), opened(folder, [entry.name]) as inner:
                    yield from _files(inner, f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    size_bytes = entry.stat(follow_symlinks=False).st_size
                    yield Stored(f"{prefix}{entry.name}", size_bytes)


def _unlink(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _remove_if_empty(parent: int, name: str) -> None:
    """Remove a folder in which at most the temporary files of dead writers are left."""
    with contextlib.suppress(FileNotFoundError):
        with opened(parent, [name]) as folder:
            names = os.listdir(folder)
            if not all(each.startswith(_TEMPORARY) for each in names):
                return
            for each in names:
                with contextlib.suppress(OSError):
                    os.unlink(each, dir_fd=folder)
        with contextlib.suppress(OSError):  # somebody has just written
            os.rmdir(name, dir_fd=parent)


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
