"""Folders for what need not survive: each is removed when its owner ends, or by the next one.

An owner holds a lock in its folder. Whoever makes a folder removes those beside it that nobody
holds: their process was killed. Numbers of processes would say less, as containers that share a
folder all have a process 1.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from onyx.errors import SettingsError

_OWNER = "owner"


class Scratch:
    """A folder of one's own."""

    def __init__(self, parent: Path) -> None:
        """
        Raises:
            SettingsError: nothing can be written there.
        """
        try:
            parent.mkdir(parents=True, exist_ok=True)
            with (parent / "lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                for each in parent.iterdir():
                    if each.is_dir():
                        _remove_abandoned(each)
                self.path = Path(tempfile.mkdtemp(dir=parent))
                self._owner = os.open(self.path / _OWNER, os.O_CREAT | os.O_RDWR, 0o600)
                fcntl.flock(self._owner, fcntl.LOCK_EX)
        except OSError as error:
            raise SettingsError(
                f"ONYX_STATE_SCRATCH_DIR: no folder can be made in {parent} ({error.strerror})"
            ) from error

    def remove(self) -> None:
        """With all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._owner)


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
