"""Parts in a directory. The staging directory of a writer is also its fence.

Each writer stages its files in a directory of its own below `.staging`, named after its
incarnation, under names that no reader of the format takes (`path_names.staged_name`). A part is
fsynced there, with which a file system that has a journal keeps its name too, and renamed into the
target directory, which is then fsynced. A live peer removes the staging directories of dead
incarnations (`fence`).

Invariant: a rename out of a removed directory fails. So after `fence` has returned, a paused
process that wakes up publishes nothing. That holds only if a writer never makes its directory
again, which is why it is made once.

Rejected: a lock file. A process that is stopped while it holds the lock goes on after the lock
was broken; a rename either happened before the directory was removed, or never happens.

The bytes of a staged file stay in memory until the operating system has taken them. `write` never
fails, so a format that is in the middle of a compressed stream or a table need not be able to begin
again. `make_room` and `settle` raise when the disk is full or the file system fails. They lose
nothing and may be repeated: each byte is written at its own offset (`pwrite`), so a repeat writes
the same. After a failed fsync the file is given up. The operating system may have dropped dirty
pages and reports that only once, so a second fsync that succeeds proves nothing.

The folder of an output is made once, and is the same folder until the job ends. One that is moved
away or unmounted is not made again: parts in a new folder of that name would be hidden when the old
one returns, and each would hold half of a result. So a process remembers the folder that a task
began with and waits until it is back. All operations are relative to the open folder, so "no such
file" is an answer of this folder and of no other. It is identified by its inode, or else by the
task's staging directory in it, which a copy and a network file system keep. Rejected: a marker
file, because nobody could say when to remove it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from onyx.base.path_names import path_name, staged_name
from onyx.errors import Blocked, Fenced, InvariantViolated, OnyxError, Unavailable, WorkLost
from onyx.ids import GroupId
from onyx.storage.file_system import FULL, UNUSABLE, make_durable_directory, opened, remove_tree
from onyx.storage.staging.interface import STAGING, Token, Writer

_GONE = "gone."
_ATTEMPTS_MAX = 10
_numbers = itertools.count()


HANDED_OVER_BYTES = 1_048_576
"""`write` itself hands over what waits when it is this much."""
_REMEMBERED_MAX = 10_000
_begun: dict[tuple[str, str], int] = {}
"""Inode of the folder that each task of a job began with, in this process."""


class DirectoryParts:
    """The parts of one task in one directory (`staging.interface.PartStore`)."""

    size_bytes_max = sys.maxsize

    def __init__(self, directory: Path, writer: Writer) -> None:
        self._writer = writer
        self._names = [STAGING, writer.folder]
        """The names of the task's staging directory and the one that it is in."""
        self._staging = "/".join(self._names)
        self._folder = OutputFolder(directory, writer)
        self._own: str | None = None
        self._unsynced = False
        """Parts were renamed, and a loss of power may take that back."""

    def create(self, name: str) -> DirectoryPart:
        """A file in this writer's staging directory."""
        with self.explained():
            return DirectoryPart(self, self._folder, f"{self._made()}/{name}")

    def own(self) -> Path:
        """This writer's directory, made on first use. It may have been removed since."""
        with self.explained():
            return self._folder.path / self._staging / self._made()

    def finish(self, token: Token) -> None:
        """Rename the staged file; one that is gone was published earlier."""
        writer = path_name(str(token["writer"]), "the name of a writer")
        name = path_name(str(token["name"]), "the name of a part")
        with self.explained(), self._folder.opened() as folder:
            staged = f"{self._staging}/{writer}/{staged_name(name)}"
            try:
                os.rename(staged, name, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                if not exists(name, folder):
                    self._writer.note_missing(self._folder.path / name)
            # Also if there was nothing to rename: whoever published it may have died before the
            # name was durable, and the log counts on it from now on.
            self._unsynced = True

    def sync(self) -> None:
        """Fsync the directory, if parts were renamed."""
        if self._unsynced:
            with self.explained(), self._folder.opened() as folder:
                os.fsync(folder)
            self._unsynced = False

    def fence(self, live: Sequence[GroupId]) -> None:
        """Remove the staging directories of all other incarnations."""
        keep = {str(incarnation) for incarnation in (*live, self._writer.incarnation)}
        with self.explained(), self._folder.opened() as root:
            self._refuse_links()
            with contextlib.suppress(FileNotFoundError), opened(root, self._names) as folder:
                for name in sorted(os.listdir(folder)):
                    incarnation = name.rpartition(".")[0]
                    if name.startswith(_GONE):
                        self._remove(folder, name)
                    elif incarnation not in keep:
                        self._remove(folder, _fenced(folder, name))

    def sweep(self) -> None:
        """Remove the staging directories of writers that are named like this one."""
        ours, path = self._writer.name, self._folder.path
        with (
            self.explained(),
            self._folder.opened() as root,
            contextlib.suppress(FileNotFoundError),
        ):
            with opened(root, self._names) as folder:
                for name in sorted(os.listdir(folder)):
                    if name.startswith(ours):
                        self._remove(folder, name)
            with contextlib.suppress(OSError):
                (path / self._staging).rmdir()
                (path / STAGING).rmdir()

    def close(self) -> None:
        """Remove this writer's directory with what is left in it, and its parents if empty."""
        if self._own is None:
            return
        path = self._folder.path
        with contextlib.suppress(OSError):
            with opened(path, self._names) as folder:
                self._remove(folder, self._own)
            (path / self._staging).rmdir()
            (path / STAGING).rmdir()

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raises errors of the system as errors of this task. A missing file in a folder that
        exists can only be the staging directory: this incarnation is fenced."""
        try:
            yield
        except FileNotFoundError as error:  # in a folder that is there
            writer = self._writer
            raise Fenced(
                f"task {writer.task!r}: {self._folder.path}: {error.strerror}: the staging "
                f"directory of incarnation {writer.incarnation} was removed, because it was "
                "declared dead (or somebody removed it)"
            ) from error
        except OSError as error:
            raise self._folder.explained(error) from error

    def _remove(self, folder: int, name: str) -> None:
        """Remove the directory of a writer; `folder` is the open one that it is in."""
        remove_tree(folder, name)

    def _made(self) -> str:
        """Name of this writer's directory."""
        if self._own is None:
            with self._folder.opened() as folder:
                self._refuse_links()
                own = f"{self._writer.name}{next(_numbers)}"
                _make_beside_removals(folder, [*self._names, own])
                self._own = own
        return self._own

    def _refuse_links(self) -> None:
        """Onyx must not remove what a link leads to, so it does not use it either."""
        for name in (STAGING, self._staging):
            path = self._folder.path / name
            if path.is_symlink():
                raise self._writer.error(
                    f"{path} is a link, but must be a directory of Onyx: remove it"
                )


class DirectoryPart:
    """A file in a staging directory (`staging.interface.StagedPart`)."""

    def __init__(self, store: DirectoryParts, folder: OutputFolder, name: str) -> None:
        """`name`: writer and part."""
        self._store = store
        self._folder = folder
        self._writer, self._name = name.split("/")
        self._staged = f"{folder.staging}/{self._writer}/{staged_name(self._name)}"
        self._asked = False
        self._file = StagedFile(folder, self._staged)
        self.file = cast(BinaryIO, self._file)

    def make_room(self) -> None:
        """Write to the file what is in memory."""
        with self._store.explained():
            self._file.make_room()

    def settle(self) -> None:
        """Write the rest and fsync the file."""
        with self._store.explained():
            self._file.settle()

    def publish(self) -> None:
        """Rename the file, then fsync the directory. A rename whose answer was lost is repeated,
        and then the published file is there instead of the staged one."""
        with self._store.explained(), self._folder.opened() as folder:
            # Before the first try alone: later the file of this name may be the one published here.
            if not self._asked and exists(self._name, folder):
                raise InvariantViolated(f"{self._name} exists, but names of parts are unique")
            try:
                self._asked = True
                os.rename(self._staged, self._name, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                # A reply can be lost, and then the second time there is nothing to rename.
                if not exists(self._name, folder):
                    raise
            os.fsync(folder)

    def token(self) -> Token:
        """Name of the staging directory, and of the file."""
        return {"writer": self._writer, "name": self._name}

    def drop(self) -> None:
        """The file goes with its directory."""
        self._file.close()


def _make_beside_removals(folder: int, names: Sequence[str]) -> None:
    """Make the last of directories in one another, while somebody may remove empty ones."""
    *parents, path = itertools.accumulate(names, lambda before, name: f"{before}/{name}")
    for attempt in range(_ATTEMPTS_MAX):
        try:
            for parent in parents:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(parent, dir_fd=folder)
            os.mkdir(path, dir_fd=folder)
            return
        except FileNotFoundError:
            if attempt == _ATTEMPTS_MAX - 1:
                raise


def _fenced(folder: int, name: str) -> str:
    """Rename a directory, which fences its writer in one step; its new name."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(name, f"{_GONE}{name}", src_dir_fd=folder, dst_dir_fd=folder)
    return f"{_GONE}{name}"


class StagedFile(io.RawIOBase):
    """Used by one thread. All but `write` raise OSError and may be repeated then."""

    def __init__(self, folder: OutputFolder, name: str) -> None:
        """Make the file `name`, relative to the folder; it must not be there."""
        self._folder = folder
        self._name = name
        self._waiting = bytearray()
        self._on_disk = 0
        self._failing = False
        self._settled = False
        self._lost = ""
        self._descriptor: int | None = None  # closing a file that could not be made needs it
        self._descriptor = self._open(os.O_CREAT | os.O_EXCL)

    def writable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Bytes written, on disk or not."""
        return self._on_disk + len(self._waiting)

    def write(self, data: Any, /) -> int:
        """Take all of it. An encoder could not repeat this call, so a failure to hand over is
        raised by the next `make_room` or `settle`."""
        self._waiting += data
        if len(self._waiting) >= HANDED_OVER_BYTES and not self._failing:
            with contextlib.suppress(OSError):
                self.make_room()
        return memoryview(data).nbytes

    def make_room(self) -> None:
        """Hand over what waits."""
        self._failing = True
        while self._waiting:
            if self._descriptor is None:
                self._descriptor = self._open(0)
            try:
                written = os.pwrite(self._descriptor, self._waiting, self._on_disk)
            except OSError:
                # A network file system may have forgotten the descriptor; a new one may work.
                self._let_go()
                raise
            self._on_disk += written
            del self._waiting[:written]
        self._failing = False

    def settle(self) -> None:
        """Make everything durable.

        Raises:
            WorkLost: the system reports that it has not written everything.
        """
        if self._settled:
            return
        if self._lost:
            raise WorkLost(self._lost)
        self.make_room()
        if self._descriptor is None:
            self._descriptor = self._open(0)
        self._make_sure(self._descriptor)
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._gives_up(error.strerror or str(error)) from error
        self._settled = True
        self._let_go()

    def close(self) -> None:
        """Let go of the file; what waits is dropped."""
        if not self.closed:
            self._waiting.clear()
            self._let_go()
        super().close()

    def _open(self, flags: int) -> int:
        with self._folder.opened() as folder:
            return os.open(self._name, os.O_WRONLY | flags, 0o666, dir_fd=folder)

    def _make_sure(self, descriptor: int) -> None:
        """The name leads to the file that was written: the folder may have been replaced by a
        copy."""
        with self._folder.opened() as folder:
            named = os.stat(self._name, dir_fd=folder)
        if named.st_ino != os.fstat(descriptor).st_ino or named.st_size != self._on_disk:
            raise self._gives_up("another file is in its place")

    def _gives_up(self, why: str) -> WorkLost:
        self._lost = f"{self._folder.path}: {self._name}: what was written is lost: {why}"
        return WorkLost(self._lost)

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


class OutputFolder:
    """The output folder of one task, as one writer of this process sees it."""

    def __init__(self, path: Path, writer: Writer) -> None:
        self.path = path
        self.staging = f"{STAGING}/{writer.folder}"
        """The task's staging directory, relative to the folder."""
        self._writer = writer
        self._key = (writer.folder, str(path.absolute()))

    @property
    def begun(self) -> bool:
        """Whether the task has had its folder; what it could use then it can use again."""
        return self._key in _begun

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of the folder, which is made the first time.

        Raises:
            Blocked: it is gone, or another one is in its place; it is waited for.
            OSError: it cannot be made or opened.
        """
        if not self.begun:
            make_durable_directory(self.path)
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError as error:
            raise self._away("is gone") from error
        try:
            self._recognize(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)

    def explained(self, error: OSError) -> OnyxError:
        """Why writing here cannot go on. What worked before passes: a disk that was mounted for
        reading only after an error, or an access right that was taken away."""
        what = f"cannot write to {self.path}: {error.strerror or error}"
        if error.errno in FULL:
            return self._blocked(f"{what}; make room on the disk, and the job goes on")
        if error.errno not in UNUSABLE:
            return Unavailable(f"task {self._writer.task!r}: {what}")
        if self.begun:
            return self._blocked(f"{what}; when it can be written again the job goes on")
        return self._writer.error(f"{what}; give the worker a directory it may write")

    def _recognize(self, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        known = _begun.get(self._key, inode)
        if inode != known and not exists(self.staging, descriptor):
            raise self._away("is not the one that the job began with")
        if len(_begun) >= _REMEMBERED_MAX and self._key not in _begun:
            _begun.pop(next(iter(_begun)))
        _begun[self._key] = inode

    def _away(self, how: str) -> Blocked:
        return self._blocked(
            f"the output folder {self.path} {how}: it was moved, removed or unmounted; put it "
            "back, and the job goes on"
        )

    def _blocked(self, what: str) -> Blocked:
        return Blocked(f"task {self._writer.task!r}: {what}")


def exists(name: str, folder: int) -> bool:
    """Whether a name is in an open folder."""
    try:
        os.stat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True
