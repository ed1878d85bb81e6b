"""Parts in a directory: staged beside their place, which a dead incarnation can lose at any moment.

Every writer stages its unfinished files in a directory of its own below `.staging`, whose name
begins with its incarnation. A part is forced to disk there, renamed into the target directory in
one step, and that directory is forced to disk. Whoever is alive removes the directories of the dead
(`fence`); then nothing that a paused process still does can become visible, because a rename out of
a directory that is gone fails. So a writer makes its directory once and never again.

A lock file was rejected: a process that was stopped while it held the lock goes on after the lock
has been broken, while a rename either happened before the directory went or never does.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from onyx.durable import make_durable_directory, sync_directory
from onyx.errors import Fenced, InvariantViolated, OnyxError, Unavailable
from onyx.ids import GroupId
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext, Token

STAGING = ".staging"
_GONE = "gone."
_ATTEMPTS_MAX = 10
_UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
_numbers = itertools.count()


class DirectoryParts:
    """The parts of one task in one directory (`parts.PartsPlace`)."""

    size_bytes_max = sys.maxsize

    def __init__(self, directory: Path, context: PluginContext) -> None:
        self._directory = directory
        self._context = context
        self._task = directory / STAGING / f"{context.job}.{context.task}"
        self._own: Path | None = None

    def create(self, name: str) -> DirectoryPart:
        return DirectoryPart(self.own() / name, self._directory)

    def own(self) -> Path:
        """This writer's directory, made on first use. It may have been removed since.

        Raises:
            OSError: the directories cannot be made.
        """
        if self._own is None:
            make_durable_directory(self._directory)
            self._own = self._task / f"{self._context.incarnation}.{next(_numbers)}"
            _make_beside_removals(self._own)
        return self._own

    def finish(self, token: Token) -> None:
        staged = self._task / str(token["writer"]) / str(token["name"])
        with contextlib.suppress(FileNotFoundError):
            staged.rename(self._directory / staged.name)
            sync_directory(self._directory)

    def fence(self, live: Sequence[GroupId]) -> None:
        """Take the directories of all other incarnations away."""
        keep = {str(incarnation) for incarnation in (*live, self._context.incarnation)}
        for name in _names(self._task):
            incarnation = name.rpartition(".")[0]
            if name.startswith(_GONE):
                shutil.rmtree(self._task / name, ignore_errors=True)
            elif incarnation not in keep:
                self._remove(name)

    def explained(self, error: OSError) -> OnyxError:
        context = self._context
        what = f"{self._directory}: {error.strerror or error}"
        if error.errno == errno.ENOENT:
            return Fenced(
                f"task {context.task!r}: {what}: the staging directory of incarnation "
                f"{context.incarnation} was removed, because it was declared dead (or somebody "
                "removed the output directory)"
            )
        if error.errno in _UNUSABLE:
            return task_error(
                context, f"cannot write to {what}; give the worker a directory it may write"
            )
        return Unavailable(f"task {context.task!r}: cannot write to {what}")

    def close(self) -> None:
        """Remove this writer's directory with what is left in it, and its parents if empty."""
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            with contextlib.suppress(OSError):
                self._task.rmdir()
                self._task.parent.rmdir()

    def _remove(self, name: str) -> None:
        gone = self._task / f"{_GONE}{name}"
        with contextlib.suppress(FileNotFoundError):
            (self._task / name).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


class DirectoryPart:
    """A file in a staging directory (`parts.StagedPart`)."""

    def __init__(self, path: Path, directory: Path) -> None:
        self._path = path
        self._directory = directory
        self.file: BinaryIO = open(path, "xb")  # noqa: SIM115 - closed when settled or dropped

    def make_room(self) -> None:
        """The system does."""

    def settle(self) -> None:
        if not self.file.closed:
            with self.file as file:
                file.flush()
                os.fsync(file.fileno())

    def publish(self) -> None:
        target = self._directory / self._path.name
        if target.exists():
            raise InvariantViolated(f"{target} exists, but names of parts are unique")
        self._path.rename(target)
        sync_directory(self._directory)

    def token(self) -> Token:
        return {"writer": self._path.parent.name, "name": self._path.name}

    def drop(self) -> None:
        """The file goes with its directory."""
        with contextlib.suppress(OSError):
            self.file.close()


def published_parts(directory: Path, suffix: str) -> list[Path]:
    """The visible parts of a directory, in a stable order."""
    return sorted(directory.glob(f"part-*{suffix}"))


def _make_beside_removals(directory: Path) -> None:
    """Make a directory while another writer may be removing its empty parents."""
    for _ in range(_ATTEMPTS_MAX):
        with contextlib.suppress(FileNotFoundError):
            directory.mkdir(parents=True)
            return
    directory.mkdir(parents=True)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
