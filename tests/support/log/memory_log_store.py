"""What the sessions of the in-memory log share: the part that the server is in ZooKeeper."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Protocol

from onyx.codec.packed import pack
from onyx.ids import NO_POSITION, GroupId, Position
from onyx.log.interface import Document, Origin
from onyx.settings import LogSettings


class Watcher(Protocol):
    """A session, as the store sees it."""

    def look(self) -> None:
        """Something changed; called under the lock."""


@lru_cache(10_000)
def packed_bytes(data: bytes) -> int:
    """What a document takes when it is compressed."""
    return len(pack(data))


class MemoryStore:
    """The nodes, and who is notified of changes. `lock` guards everything in it."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.entries: dict[Position, bytes] = {}
        self.origin = Origin(NO_POSITION, b"")
        self.chunks: dict[str, bytes] = {}
        self.touched_s: dict[str, float] = {}
        self.documents: dict[str, Document] = {}
        self.parameters: dict[str, str] | None = None
        self.owner = ""
        self.pulses: dict[GroupId, Watcher] = {}
        """Each with the session that owns it."""
        self.sessions: list[Watcher] = []
        self._next = 0

    def write(self, payloads: Sequence[bytes], fence: GroupId | None) -> list[Position] | None:
        """One transaction; None, and nothing written, if the pulse that it checks is gone."""
        with self.lock:
            if fence is not None and fence not in self.pulses:
                return None
            first, self._next = self._next, self._next + len(payloads)
            positions = [Position(number) for number in range(first, self._next)]
            self.entries.update(zip(positions, payloads, strict=True))
            self._changed()
            return positions

    def collect(self, origin: Origin) -> bool:
        """Move the origin forward and delete what it contains."""
        with self.lock:
            if origin.position > self.origin.position:
                self.origin = origin
            for position in [p for p in self.entries if p <= self.origin.position]:
                del self.entries[position]
            self._changed()
            return origin == self.origin

    def begin_with(self, origin: Origin) -> bool:
        """Start from a replica, if nothing has been here."""
        with self.lock:
            if self._next == 0:
                self._next = origin.position + 1
                return self.collect(origin)
            return origin == self.origin and self._next == origin.position + 1

    def bytes(self) -> int:
        """What all nodes have together, the replica of the origin among them."""
        with self.lock:
            packed = sum(map(packed_bytes, (*self.chunks.values(), self.origin.replica)))
            documents = sum(len(each.data) for each in self.documents.values())
            return packed + documents + sum(map(len, self.entries.values()))

    def touch(self, digests: Collection[str]) -> bool:
        """Somebody is about to name these chunks; False if one is gone."""
        with self.lock:
            if not all(each in self.chunks for each in digests):
                return False
            self.touched_s.update((each, time.monotonic()) for each in digests)
            return True

    def drop_pulse(self, group: GroupId) -> None:
        """Remove the ephemeral node of a session that ended."""
        with self.lock:
            self.pulses.pop(group, None)
            self._changed()

    def forget(self, session: Watcher) -> None:
        """The session was closed."""
        with self.lock:
            self.sessions.remove(session)

    def _changed(self) -> None:
        for session in tuple(self.sessions):
            session.look()
