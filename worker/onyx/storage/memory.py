"""Blobs in memory: the twin of the other stores, for tests and the simulator."""

from __future__ import annotations

import threading

from onyx.base.path_names import file_path
from onyx.storage.interface import ListedFile


class MemoryBlobStore:
    """A `BlobStore` that several peers of one process share."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def create(self, name: str, data: bytes) -> bool:
        """Write `data` under a name that nobody has written."""
        file_path(name)
        with self._lock:
            return self._blobs.setdefault(name, data) == data

    def note(self, name: str, data: bytes) -> None:
        """Write `data` in the place of what is there."""
        with self._lock:
            if name in self._blobs:
                self._blobs[name] = data

    def read(self, name: str) -> bytes | None:
        """All bytes, or None when there is nothing of this name."""
        with self._lock:
            return self._blobs.get(name)

    def list(self, prefix: str) -> list[ListedFile]:
        """All below a folder, in the order of their names."""
        with self._lock:
            names = sorted(name for name in self._blobs if name.startswith(prefix))
            return [ListedFile(name, len(self._blobs[name])) for name in names]

    def copy(self, name: str, to: str) -> None:
        """Have the same bytes under another name too."""
        data = self.read(name)
        if data is not None:
            self.create(to, data)

    def delete(self, name: str) -> None:
        """Remove it; nothing happens when it is not there."""
        with self._lock:
            self._blobs.pop(name, None)

    def remove_tree(self, name: str) -> None:
        """Remove a folder with all that is in it."""
        for each in self.list(f"{name}/"):
            self.delete(each.name)
