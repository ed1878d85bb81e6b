"""Files of this machine that cannot be opened or read when their turn says so, and can the next
time."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from onyx.storage import files
from onyx.storage.files import LocalFile


@contextmanager
def failing_files(turns: Sequence[bool]) -> Iterator[None]:
    """Whether each open or read of a file fails, in turn; behind the last turn none does."""
    left = iter(turns)

    def turn() -> None:
        if next(left, False):
            raise OSError(errno.EIO, "this disk fails now and then")

    class FailingFile(LocalFile):
        def __init__(self, path: str, versions: dict[str, str]) -> None:
            turn()
            super().__init__(path, versions)

        def read(self, size: int | None = -1, /) -> bytes:
            turn()
            return super().read(size)

        def readinto(self, buffer: object, /) -> int:
            turn()
            return super().readinto(buffer)

    with mock.patch.object(files, "LocalFile", FailingFile):
        yield
