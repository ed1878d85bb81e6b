"""Bytes that are put on the disk until they are asked for: what a log says of a large state."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from onyx.settings import StateSettings
from onyx.state.local.scratch import scratch_folder


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
