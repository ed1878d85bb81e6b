"""Directories for unfinished work, which a dead incarnation can lose at any moment.

Every writer stages its unfinished files in a directory of its own below `.staging`, whose name
begins with its incarnation. Whoever is alive removes the directories of the dead (`fence`); then
nothing that a paused process still does can become visible, because a rename out of a directory
that is gone fails. So a writer makes its directory once and never again.

A lock file was rejected: a process that was stopped while it held the lock goes on after the lock
has been broken, while a rename either happened before the directory went or never does.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from onyx.ids import GroupId
from onyx.plugins.protocol import PluginContext

STAGING = ".staging"
_GONE = "gone."
_ATTEMPTS_MAX = 10
_numbers = itertools.count()


class Staging:
    """The staging directories of one task below the directory that it writes to."""

    def __init__(self, directory: Path, context: PluginContext) -> None:
        self._directory = directory
        self._task = directory / STAGING / f"{context.job}.{context.task}"
        self._incarnation = context.incarnation
        self._own: Path | None = None

    def own(self) -> Path:
        """This writer's directory, made on first use. It may have been removed since.

        Raises:
            OSError: the directories cannot be made.
        """
        if self._own is None:
            make_durable_directory(self._directory)
            self._own = self._task / f"{self._incarnation}.{next(_numbers)}"
            _make_beside_removals(self._own)
        return self._own

    def fence(self, live: Sequence[GroupId]) -> None:
        """Take the directories of all other incarnations away; idempotent, also when several
        peers do it at once."""
        keep = {str(incarnation) for incarnation in live} | {str(self._incarnation)}
        for name in _names(self._task):
            incarnation = name.rpartition(".")[0]
            if name.startswith(_GONE):
                shutil.rmtree(self._task / name, ignore_errors=True)
            elif incarnation not in keep:
                self._remove(name)

    def _remove(self, name: str) -> None:
        gone = self._task / f"{_GONE}{name}"
        with contextlib.suppress(FileNotFoundError):
            (self._task / name).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def close(self) -> None:
        """Remove this writer's directory with what is left in it, and its parents if empty."""
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            with contextlib.suppress(OSError):
                self._task.rmdir()
                self._task.parent.rmdir()


def _make_beside_removals(directory: Path) -> None:
    """Make a directory while another writer may be removing its empty parents."""
    for _ in range(_ATTEMPTS_MAX):
        with contextlib.suppress(FileNotFoundError):
            directory.mkdir(parents=True)
            return
    directory.mkdir(parents=True)


def make_durable_directory(directory: Path) -> None:
    """Make a directory, and make sure that it is still there after a loss of power."""
    missing = list(itertools.takewhile(lambda each: not each.exists(), _upwards(directory)))
    directory.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_directory(each.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _upwards(directory: Path) -> list[Path]:
    absolute = directory.absolute()
    return [absolute, *absolute.parents]


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
