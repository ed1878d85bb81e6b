"""Chunks in memory: the twin of the other stores, for tests and the simulator."""

from __future__ import annotations

import threading

from onyx.path_names import path_of_names
from onyx.state.stores.interface import Stored


class MemoryChunkStore:
    """A `ChunkStore` that several peers of one process share."""

    def __init__(self) -> None:
        self._chunks: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def create(self, name: str, data: bytes) -> bool:
        """Write `data` under a name that nobody has written."""
        path_of_names(name, "the name of a chunk")
        with self._lock:
            return self._chunks.setdefault(name, data) == data

    def read(self, name: str) -> bytes | None:
        """All bytes, or None when there is nothing of this name."""
        with self._lock:
            return self._chunks.get(name)

    def list(self, prefix: str) -> list[Stored]:
        """All whose names begin with `prefix`, which ends with `/`, in the order of their names."""
        with self._lock:
            names = sorted(name for name in self._chunks if name.startswith(prefix))
            return [Stored(name, len(self._chunks[name])) for name in names]

    def delete(self, name: str) -> None:
        """Remove it; nothing happens when it is not there."""
        with self._lock:
            self._chunks.pop(name, None)
