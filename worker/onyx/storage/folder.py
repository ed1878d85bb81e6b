"""A location in a folder that all workers of the cluster see.

A file is written under a hidden name, forced to disk, linked under its own name, and the folder is
forced to disk. `link` fails when the name is there, on network file systems too; `rename` would
replace it. Nothing outside of the root is ever touched, whatever names and links there are
(`rooted`), and nobody else may read it where a `Purpose` says so.

A location that was written to once may be written to again: a disk that is mounted for reading only
after an error, or a right that was taken away, is waited for. One that never was is an error for
whoever runs the worker.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from onyx.base.path_names import file_path, is_file_name
from onyx.errors import OnyxError, Unavailable, UserError
from onyx.storage.file_system import BY_UMASK, FULL, UNUSABLE, make_durable_directory, opened
from onyx.storage.interface import Entry, ListedFile, Modes, NewFile, Purpose
from onyx.storage.staging.folder import DirectoryParts
from onyx.storage.staging.interface import Writer

POLL_S = 0.2
_HIDDEN = "."
_BY_UMASK = Modes(BY_UMASK, BY_UMASK)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOTE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Folder:
    """A `Location` in a folder."""

    poll_s = POLL_S

    def __init__(
        self,
        root: Path,
        purpose: Purpose | None = None,
        below: Sequence[str] = (),
        written: threading.Event | None = None,
    ) -> None:
        """Nothing is made yet.

        Args:
            root: may be a link, which somebody has chosen; nothing below it may be one.
            below: names of the folders in the root that lead to this one.
            written: set once somebody could write somewhere in the root.
        """
        self._root = root.absolute()
        self._purpose = purpose or Purpose()
        self.modes = self._purpose.modes or _BY_UMASK
        self._below = tuple(below)
        self._written = written or threading.Event()

    @property
    def local(self) -> Path:
        """The folder."""
        return self._root.joinpath(*self._below)

    def __str__(self) -> str:
        return str(self.local)

    def __truediv__(self, name: str) -> Folder:
        below = (*self._below, *file_path(name))
        return Folder(self._root, self._purpose, below, self._written)

    def path_of(self, name: str) -> str:
        """The path of a file."""
        return str(self.local.resolve().joinpath(*file_path(name)))

    def create(self, name: str, data: bytes) -> bool:
        """Write `data` under a name that nobody has written."""
        with self.writing(name) as (folder, file):
            try:
                with _filled(folder, data, self.modes.file) as unfinished:
                    os.link(unfinished, file, src_dir_fd=folder, dst_dir_fd=folder)
                created = True
            except FileExistsError:
                # Ours, if the answer to an earlier try of this call was lost; else as good as ours.
                created = _content(folder, file) == data
            # Also if it was there: whoever linked it may have died before its name was durable.
            os.fsync(folder)
        return created

    def note(self, name: str, data: bytes) -> None:
        """Write `data` in place. A file of a few bytes is within one sector of the disk, which is
        written whole; a file that is new and renamed would take four times as long."""
        with contextlib.suppress(FileNotFoundError), self._reading(name) as (folder, file):
            descriptor = os.open(file, _NOTE, dir_fd=folder)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)

    def replace(self, name: str, data: bytes, before: bytes | None) -> bool:
        """Write `data` in the place of what was read; two who do are kept apart by a lock on the
        file itself."""
        if before is None:
            return self.create(name, data)
        with self.writing(name) as (folder, file):
            try:
                with _locked(folder, file) as found:
                    if found != before:
                        return False
                    with _filled(folder, data, self.modes.file) as unfinished:
                        os.rename(unfinished, file, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                return False
            os.fsync(folder)
        return True

    def read(self, name: str) -> bytes | None:
        """All bytes, or None when there is nothing of this name."""
        with contextlib.suppress(FileNotFoundError), self._reading(name) as (folder, file):
            return _content(folder, file)
        return None

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        with contextlib.suppress(FileNotFoundError), self._reading(name) as (folder, file):
            os.stat(file, dir_fd=folder, follow_symlinks=False)
            return True
        return False

    def source(self, name: str) -> str:
        """The path of a file."""
        return str(self.local.joinpath(*file_path(name)))

    def list(self, prefix: str) -> Sequence[ListedFile]:
        """All below a folder, in the order of their names."""
        below = file_path(prefix.removesuffix("/")) if prefix else []
        found: list[ListedFile] = []
        with (
            self._explained(prefix),
            contextlib.suppress(FileNotFoundError),
            opened(self._root, [*self._below, *below]) as folder,
        ):
            found.extend(_files(folder, prefix))
        return sorted(found)

    def make(self) -> None:
        """Have the folder."""
        with self._explained(""):
            make_durable_directory(self._root, self._purpose.modes and self.modes.folder)
            with opened(self._root, self._below, self.modes.folder):
                self._written.set()

    def sync(self) -> None:
        """Make the names in it durable that others have just made."""
        with (
            self._explained(""),
            contextlib.suppress(FileNotFoundError),
            opened(self._root, self._below) as folder,
        ):
            os.fsync(folder)

    def entries(self) -> Sequence[Entry] | None:
        """Everything in the folder, in no order."""
        found = []
        try:
            with os.scandir(self.local) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                        found.append(Entry(entry.name, entry.is_dir(), entry.stat().st_size))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("", error) from error
        return found

    def copy(self, name: str, to: str) -> None:
        """A second link to the file."""
        with (
            contextlib.suppress(FileNotFoundError),
            self._reading(name) as (folder, file),
            self.writing(to) as (there, copied),
        ):
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(file, copied, src_dir_fd=folder, dst_dir_fd=there, follow_symlinks=False)
            os.fsync(there)

    def delete(self, name: str) -> None:
        """Remove it; nothing happens when it is not there."""
        self.delete_all([name])

    def delete_all(self, names: Iterable[str]) -> None:
        """Remove them; those that follow one another in a folder by one walk to it, which takes
        fifteen calls of the system."""
        for _, group in itertools.groupby(names, lambda each: each.rpartition("/")[0]):
            first, *others = group
            with contextlib.suppress(FileNotFoundError), self._reading(first) as (folder, file):
                for each in (file, *(file_path(other)[-1] for other in others)):
                    _unlink(folder, each)
            if self._purpose.prunes:
                self.prune(first)

    def remove_tree(self, name: str) -> None:
        """Remove a folder with all that is in it, of a link the link alone."""
        with contextlib.suppress(FileNotFoundError), self._reading(name) as (folder, file):
            try:
                os.unlink(file, dir_fd=folder)
            except OSError:
                shutil.rmtree(file, ignore_errors=True, dir_fd=folder)
                os.rmdir(file, dir_fd=folder)  # raises why it is still there, if it is

    def prune(self, name: str) -> None:
        """Remove the folders on the way to a name in which nothing is left."""
        folders = [*self._below, *file_path(name)[:-1]]
        with self._explained(name), contextlib.suppress(FileNotFoundError):
            while folders:
                *folders, last = folders
                with opened(self._root, folders) as folder:
                    _remove_if_empty(folder, last)

    def new_file(self, name: str, durable: bool = True) -> NewFile:
        """A file of a name that nobody else uses."""
        return _NewFile(self, name, durable)

    def staging(self, writer: Writer) -> DirectoryParts:
        """The parts that one writer stages here."""
        return DirectoryParts(self.local, writer)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[tuple[int, str]]:
        """The open folder of a file, which is made if it is not there, and the file's name in
        it."""
        *folders, file = file_path(name)
        with self._explained(name):
            make_durable_directory(self._root, self._purpose.modes and self.modes.folder)
            with opened(self._root, [*self._below, *folders], self.modes.folder) as folder:
                yield folder, file
            self._written.set()

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[tuple[int, str]]:
        """The open folder of a file. Raises FileNotFoundError, and others as errors of a
        location."""
        *folders, file = file_path(name)
        try:
            with opened(self._root, [*self._below, *folders]) as folder:
                yield folder, file
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._error(name, error) from error

    @contextlib.contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(name, error) from error

    def _error(self, name: str, error: OSError) -> OnyxError:
        what = f"{self.local / name}: {error.strerror or error}"
        if self._purpose.what:
            what = f"{self._purpose.what} {what}"
        if error.errno in FULL:
            return Unavailable(f"{what}; make room on the disk, and the job goes on")
        if error.errno not in UNUSABLE:
            return Unavailable(what)
        if self._written.is_set():
            return Unavailable(f"{what}; when it can be written again the job goes on")
        return UserError(f"{what}; {self._purpose.hint}" if self._purpose.hint else what)


class _NewFile(NewFile):
    """A hidden file, until it has its name."""

    def __init__(self, folder: Folder, name: str, durable: bool) -> None:
        self._folder = folder
        self._name = name
        self._hidden = f"{_HIDDEN}{secrets.token_hex(8)}"
        self._durable = durable
        with folder.writing(name) as (parent, _):
            self.file = _created(parent, self._hidden, folder.modes.file)

    def publish(self) -> None:
        """Rename it."""
        with self._folder.writing(self._name) as (parent, name):
            self.file.flush()
            if self._durable:
                os.fsync(self.file.fileno())
            os.rename(self._hidden, name, src_dir_fd=parent, dst_dir_fd=parent)
            if self._durable:
                os.fsync(parent)
        self.file.close()

    def drop(self) -> None:
        """Remove it."""
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OnyxError), self._folder.writing(self._name) as (parent, _):
            _unlink(parent, self._hidden)


def _created(folder: int, name: str, mode: int) -> BinaryIO:
    descriptor = os.open(name, _NEW, 0o666 if mode == BY_UMASK else 0o600, dir_fd=folder)
    if mode != BY_UMASK:
        os.fchmod(descriptor, mode)
    return os.fdopen(descriptor, "wb")


@contextlib.contextmanager
def _filled(folder: int, data: bytes, mode: int) -> Iterator[str]:
    """The name of a hidden file with these bytes, on disk; gone afterwards if it still is there."""
    name = f"{_HIDDEN}{secrets.token_hex(8)}"
    try:
        with _created(folder, name, mode) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield name
    finally:
        _unlink(folder, name)


@contextlib.contextmanager
def _locked(folder: int, name: str) -> Iterator[bytes | None]:
    """The bytes of a file that nobody else replaces meanwhile; None if somebody just has.

    The lock is on the file and goes with its process. Who gets it for a file that has lost its name
    has come too late.
    """
    descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        # Not waited for: whoever has the lock is about to replace what the caller has read.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        named = os.stat(name, dir_fd=folder, follow_symlinks=False)
        yield file.read() if os.path.samestat(named, os.fstat(descriptor)) else None


def _content(folder: int, name: str) -> bytes:
    with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file:
        return file.read()


def _files(folder: int, prefix: str) -> Iterator[ListedFile]:
    """Files below an open folder, which may be changing; what is hidden or a link is left out."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not is_file_name(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError), opened(folder, [entry.name]) as inner:
                    yield from _files(inner, f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    size_bytes = entry.stat(follow_symlinks=False).st_size
                    yield ListedFile(f"{prefix}{entry.name}", size_bytes)


def _unlink(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _remove_if_empty(parent: int, name: str) -> None:
    """Remove a folder in which at most the hidden files of dead writers are left."""
    with contextlib.suppress(FileNotFoundError):
        with opened(parent, [name]) as folder:
            names = []
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not entry.name.startswith(_HIDDEN):
                        return
                    names.append(entry.name)
            for each in names:
                with contextlib.suppress(OSError):
                    os.unlink(each, dir_fd=folder)
        with contextlib.suppress(OSError):  # somebody has just written
            os.rmdir(name, dir_fd=parent)
