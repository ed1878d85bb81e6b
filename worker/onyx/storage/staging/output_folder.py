"""The folder of an output: made once, and the same folder until the job ends.

A folder that is moved away or unmounted is not made again. Parts in a new folder of that name would
be hidden when the old one returns, and each would hold half of a result. So a process remembers the
folder that a task began with and waits until it is back. All operations are relative to the open
folder, so "no such file" is an answer of this folder and of no other.

A folder is identified by its inode, or else by the task's staging directory in it, which a copy and
a network file system keep. Rejected: a marker file, because nobody could say when to remove it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from onyx.errors import Blocked, OnyxError, Unavailable
from onyx.storage.durable import make_durable_directory
from onyx.storage.staging.interface import STAGING, Writer
from onyx.storage.system_errors import FULL, UNUSABLE

_REMEMBERED_MAX = 10_000
_begun: dict[tuple[str, str], int] = {}
"""Inode of the folder that each task of a job began with, in this process."""


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
