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
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from onyx.durable import make_durable_directory, sync_directory
from onyx.errors import Fenced, InvariantViolated, OnyxError, Unavailable
from onyx.ids import GroupId
from onyx.path_names import path_name
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext, Token
from onyx.rooted import opened, remove_tree

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
        self._task = directory / STAGING / staging_name(context)
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
            self._refuse_links()
            self._own = self._task / f"{self._context.incarnation}.{next(_numbers)}"
            _make_beside_removals(self._own)
        return self._own

    def finish(self, token: Token) -> None:
        writer = path_name(str(token["writer"]), "the name of a writer")
        staged = self._task / writer / path_name(str(token["name"]), "the name of a part")
        with contextlib.suppress(FileNotFoundError):
            staged.rename(self._directory / staged.name)
            sync_directory(self._directory)

    def fence(self, live: Sequence[GroupId]) -> None:
        """Take the directories of all other incarnations away."""
        keep = {str(incarnation) for incarnation in (*live, self._context.incarnation)}
        self._refuse_links()
        with contextlib.suppress(FileNotFoundError), self._staging() as folder:
            for name in sorted(os.listdir(folder)):
                incarnation = name.rpartition(".")[0]
                if name.startswith(_GONE):
                    remove_tree(folder, name)
                elif incarnation not in keep:
                    _remove(folder, name)

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
        if self._own is None:
            return
        with contextlib.suppress(OSError):
            with self._staging() as folder:
                remove_tree(folder, self._own.name)
            self._task.rmdir()
            self._task.parent.rmdir()

    def _staging(self) -> AbstractContextManager[int]:
        """The staging directories of this task, held open; no link leads there."""
        return opened(self._directory, [STAGING, self._task.name])

    def _refuse_links(self) -> None:
        """What is behind a link is not ours to remove, so it may not be used either."""
        for place in (self._task.parent, self._task):
            if place.is_symlink():
                raise task_error(
                    self._context, f"{place} is a link, but must be a directory of Onyx: remove it"
                )


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


def staging_name(context: PluginContext) -> str:
    """Name of the place, below `.staging`, of what the peers of a task have not finished.

    Raises:
        UserError: the id of the job, or the task's name, cannot be a part of a path.
    """
    job = path_name(context.job, "the id of a job")
    return f"{job}.{path_name(context.task, 'the name of a task')}"


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


def _remove(folder: int, name: str) -> None:
    """Take a directory away at once, then remove what is in it."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(name, f"{_GONE}{name}", src_dir_fd=folder, dst_dir_fd=folder)
    remove_tree(folder, f"{_GONE}{name}")
