"""Objects by kind, namespace and name, and the history of their changes: etcd's part of the fake.

One revision counts all changes, as in etcd: it is the `resourceVersion` of what was changed last.
Watchers ask for the changes after a revision and are called when there are more. Values that are
stored are never changed in place: whoever wants to change one makes a copy.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.operator.fake_api.errors import gone
from tests.operator.fake_api.kinds import Kind

Object = dict[str, Any]
HISTORY_MAX = 100_000


@dataclass(frozen=True)
class Change:
    """One change: `old` is None for a creation, `new` is None for a removal."""

    revision: int
    key: tuple[str, str]
    old: Object | None
    new: Object | None
    last: Object | None = None
    """For a removal: the object as it was, with the revision of its removal."""


class Store:
    """All objects. Methods may be called from any thread; `lock` makes several calls one step."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.revision = 1
        self.compacted = 0
        self._objects: dict[tuple[str, str], dict[tuple[str, str], Object]] = {}
        self._history: deque[Change] = deque(maxlen=HISTORY_MAX)
        self._listeners: list[Callable[[], None]] = []
        self._places: dict[str, tuple[tuple[str, str], tuple[str, str]]] = {}
        self._owned: dict[str, set[str]] = {}

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self._objects.get(kind.key, {}).get((namespace, name))

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        with self.lock:
            found = sorted(self._objects.get(kind.key, {}).items())
        return [each for (where, _), each in found if not namespace or where == namespace]

    def put(self, kind: Kind, value: Object) -> Object:
        """Store `value`, which the store owns from now on; returns it with its new version."""
        metadata = value["metadata"]
        at = (metadata.get("namespace", ""), metadata["name"])
        with self.lock:
            self.revision += 1
            metadata["resourceVersion"] = str(self.revision)
            objects = self._objects.setdefault(kind.key, {})
            old, objects[at] = objects.get(at), value
            self._places[metadata["uid"]] = (kind.key, at)
            for owner in metadata.get("ownerReferences", ()):
                self._owned.setdefault(owner["uid"], set()).add(metadata["uid"])
            self._tell(Change(self.revision, kind.key, old, value))
        return value

    def remove(self, kind: Kind, value: Object) -> Object:
        """Remove this object; returns it with the version of its removal."""
        metadata = value["metadata"]
        at = (metadata.get("namespace", ""), metadata["name"])
        with self.lock:
            self.revision += 1
            old = self._objects[kind.key].pop(at)
            del self._places[metadata["uid"]]
            version = {"resourceVersion": str(self.revision)}
            last = {**value, "metadata": {**metadata, **version}}
            self._tell(Change(self.revision, kind.key, old, None, last))
        return last

    def has(self, uid: str) -> bool:
        """Is there an object with this uid?"""
        return uid in self._places

    def dependents(self, owner: str) -> list[tuple[tuple[str, str], Object]]:
        """Objects that name this uid as an owner, each with the key of its kind."""
        found = []
        for uid in sorted(self._owned.get(owner, ())):
            if uid in self._places:
                key, at = self._places[uid]
                value = self._objects[key][at]
                if any(e["uid"] == owner for e in value["metadata"].get("ownerReferences", ())):
                    found.append((key, value))
        return found

    def changes(self, key: tuple[str, str], since: int) -> tuple[list[Change], int]:
        """Changes of one kind after a revision, and the revision up to which they are known.

        Raises ApiError (410) if some of them are no longer known.
        """
        with self.lock:
            if since < self.compacted:
                raise gone(f"too old resource version: {since} ({self.compacted})")
            newer = []
            for change in reversed(self._history):
                if change.revision <= since:
                    break
                if change.key == key:
                    newer.append(change)
            return newer[::-1], self.revision

    def compact(self) -> None:
        """Forget the history, so that who watches from an older version gets 410 Gone."""
        with self.lock:
            self._history.clear()
            self.compacted = self.revision

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after each change, from the thread that made it; returns what ends this."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def _tell(self, change: Change) -> None:
        if len(self._history) == HISTORY_MAX:
            self.compacted = self._history[0].revision
        self._history.append(change)
        for callback in tuple(self._listeners):
            callback()
