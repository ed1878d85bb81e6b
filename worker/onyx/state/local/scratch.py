"""Folders for what need not survive: each is removed when its owner ends, or by the next one.

An owner holds a lock in its folder. Who makes a folder removes those beside it that nobody
holds: their process was killed. Numbers of processes would say less, as containers that share a
folder all have a process 1. In one of them lies what a log says of a large state, until it is asked
for (`Spool`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from onyx.errors import SettingsError
from onyx.settings import StateSettings

_OWNER = "owner"
_SETTING = "ONYX_STATE_SCRATCH_DIR"


def scratch_folder(settings: StateSettings) -> Path:
    """The folder in which others are made; it is there.

    Raises:
        SettingsError: it cannot be made.
    """
    if not settings.scratch_dir:
        return temporary_folder(_SETTING)
    folder = Path(settings.scratch_dir)
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error, _SETTING) from error
    return folder


def temporary_folder(setting: str = "TMPDIR") -> Path:
    """A folder of this user, in which others are made, in the system's temporary folder.

    Args:
        setting: which names another one.

    Raises:
        SettingsError: it cannot be made, or another user has made it.
    """
    folder = Path(tempfile.gettempdir(), f"onyx-scratch-{os.getuid()}")
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        if not _is_ours(folder):
            raise PermissionError(errno.EACCES, "it is another user's")
    except OSError as error:
        raise _unusable(folder, error, setting) from error
    return folder


class Scratch:
    """A folder of one's own."""

    def __init__(self, parent: Path, setting: str = _SETTING) -> None:
        """
        Args:
            setting: which names another parent.

        Raises:
            SettingsError: nothing can be written there.
        """
        self._owner: int | None = None
        try:
            with (parent / "lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                for each in parent.iterdir():
                    if each.is_dir() and not each.is_symlink():
                        _remove_abandoned(each)
                self.path = Path(tempfile.mkdtemp(dir=parent))
                self._owner = os.open(self.path / _OWNER, os.O_CREAT | os.O_RDWR, 0o600)
                fcntl.flock(self._owner, fcntl.LOCK_EX)
        except OSError as error:
            raise _unusable(parent, error, setting) from error

    def remove(self) -> None:
        """With all that is in it. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        owner, self._owner = self._owner, None
        if owner is not None:
            os.close(owner)

    def __enter__(self) -> Path:
        """The folder, until the end of the block."""
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the folder."""
        self.remove()


def _is_ours(folder: Path) -> bool:
    """The temporary folder is everybody's: what lies there under our name may be another's."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _unusable(folder: Path, error: OSError, setting: str) -> SettingsError:
    return SettingsError(
        f"{setting}: nothing can be written to {folder} ({error.strerror}); name a "
        "folder on a local disk"
    )


def _remove_abandoned(folder: Path) -> None:
    try:
        owner = os.open(folder / _OWNER, os.O_RDWR)
    except OSError:
        return  # not one of ours, or somebody else's
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(owner)


class Spooled(NamedTuple):
    """Some bytes."""

    spool: Spool
    at: int
    size: int

    def read(self) -> bytes:
        """The bytes from the file."""
        return self.spool.read(self.at, self.size)


Kept = bytes | Spooled
Keep = Callable[[memoryview], Kept]


class Spool:
    """A file without a name, which is gone when nobody has any of its bytes."""

    def __init__(self, folder: Path) -> None:
        self._file, name = tempfile.mkstemp(dir=folder)
        os.unlink(name)
        weakref.finalize(self, os.close, self._file)
        self._end = 0

    def keep(self, data: memoryview) -> Spooled:
        """
        Raises:
            OSError: the disk is full, or fails.
        """
        at, left = self._end, data
        while left:
            left = left[os.write(self._file, left) :]
        self._end += len(data)
        return Spooled(self, at, len(data))

    def read(self, at: int, size: int) -> bytes:
        """So many bytes at an offset of the file."""
        return os.pread(self._file, size, at)


def keep_of(settings: StateSettings) -> Keep:
    """How bytes of state are kept while it is read.

    Raises:
        SettingsError: nothing can be written to the scratch folder.
    """
    return Spool(scratch_folder(settings)).keep if settings.memory_extents_max else bytes


def bytes_of(kept: Kept) -> bytes:
    """Once more what was kept."""
    return kept.read() if isinstance(kept, Spooled) else kept
