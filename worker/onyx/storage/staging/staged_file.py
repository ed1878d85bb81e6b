"""A staged file whose bytes stay in memory until the operating system has taken them.

`write` never fails, so a format that is in the middle of a compressed stream or a table need not be
able to begin again. `make_room` and `settle` raise when the disk is full or the file system fails.
They lose nothing and may be repeated: each byte is written at its own offset (`pwrite`), so a
repeat writes the same.

After a failed fsync the file is given up. The operating system may have dropped dirty pages and
reports that only once, so a second fsync that succeeds proves nothing.
"""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

from onyx.errors import WorkLost
from onyx.storage.staging.output_folder import OutputFolder

HANDED_OVER_BYTES = 1_048_576
"""`write` itself hands over what waits when it is this much."""


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
        self._descriptor: int | None = self._open(os.O_CREAT | os.O_EXCL)

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
