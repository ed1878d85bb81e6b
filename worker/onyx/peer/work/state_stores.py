"""Where one process keeps the state of its windowed tasks. Opened when the first task asks."""

from __future__ import annotations

import threading

from onyx.settings import Settings
from onyx.state.opening import open_store, state_location
from onyx.storage.interface import BlobStore
from onyx.storage.memory import MemoryBlobStore


class StateStores:
    """The stores of one incarnation. Any thread of a task may ask."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._durable: BlobStore | None = None
        self._memory = MemoryBlobStore()
        self._lock = threading.Lock()

    def store(self, durable: bool) -> BlobStore:
        """The store that other processes find, or the one of this process only.

        Raises:
            UserError: it cannot be opened.
        """
        if not durable:
            return self._memory
        # Opened under the lock: two tasks that start together would open it twice.
        with self._lock:
            if self._durable is None:
                location = state_location(self._settings)
                self._durable = open_store(location, self._settings.state.group_access)
            return self._durable
