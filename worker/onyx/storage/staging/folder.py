"""Parts in a directory. The staging directory of a writer is also its fence.

Each writer stages its files in a directory of its own below `.staging`, named after its
incarnation, under names that no reader of the format takes (`path_names.staged_name`). A part is
fsynced there and renamed into the target directory, which is then fsynced. A live peer removes the
staging directories of dead incarnations (`fence`).

Invariant: a rename out of a removed directory fails. So after `fence` has returned, a paused
process that wakes up publishes nothing. That holds only if a writer never makes its directory
again, which is why it is made once.

Rejected: a lock file. A process that is stopped while it holds the lock goes on after the lock
was broken; a rename either happened before the directory was removed, or never happens.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from onyx.base.path_names import path_name, staged_name
from onyx.errors import Fenced, InvariantViolated
from onyx.ids import GroupId
from onyx.storage.rooted import opened, remove_tree
from onyx.storage.staging.interface import STAGING, Token, Writer
from onyx.storage.staging.output_folder import OutputFolder, exists
from onyx.storage.staging.staged_file import StagedFile

_GONE = "gone."
_ATTEMPTS_MAX = 10
_numbers = itertools.count()


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
            os.fsync(folder)

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
