"""Watches: a stream of events of one kind from a version on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.operator.fake_api.kinds import Kind
from tests.operator.fake_api.selectors import Predicate
from tests.operator.fake_api.store import Change, Store

Event = dict[str, Any]


class Watch:
    """Where one watcher is; the HTTP layer asks it for what is new.

    A change that makes an object leave the selection is sent as DELETED, one that makes it enter
    as ADDED.
    """

    def __init__(self, store: Store, kind: Kind, namespace: str, wanted: Predicate) -> None:
        self._store = store
        self._kind = kind
        self._namespace = namespace
        self._wanted = wanted
        self._since = 0

    def start(self, version: str, *, send_initial: bool) -> list[Event]:
        """The first events. With a version: none; without: what exists, as ADDED."""
        if version not in ("", "0") and not send_initial:
            self._since = int(version)
            return []
        with self._store.lock:
            self._since = self._store.revision
            existing = self._store.list(self._kind, self._namespace)
        events = [{"type": "ADDED", "object": each} for each in existing if self._wanted(each)]
        return [*events, self.bookmark(initial=True)] if send_initial else events

    def next(self) -> list[Event]:
        """What has happened since the last call. Raises ApiError (410)."""
        changes, self._since = self._store.changes(self._kind.key, self._since)
        return [event for change in changes for event in self._events(change)]

    def bookmark(self, *, initial: bool = False) -> Event:
        """An event that only says how far this watch has come."""
        metadata: dict[str, Any] = {"resourceVersion": str(self._since)}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        about = {"kind": self._kind.kind, "apiVersion": self._kind.api_version}
        return {"type": "BOOKMARK", "object": {**about, "metadata": metadata}}

    def _events(self, change: Change) -> Iterator[Event]:
        before = change.old if change.old and self._sees(change.old) else None
        after = change.new if change.new and self._sees(change.new) else None
        if after:
            yield {"type": "MODIFIED" if before else "ADDED", "object": after}
        elif before:
            yield {"type": "DELETED", "object": change.last or self._left(change)}

    def _sees(self, value: dict[str, Any]) -> bool:
        inside = not self._namespace or value["metadata"].get("namespace") == self._namespace
        return inside and self._wanted(value)

    def _left(self, change: Change) -> dict[str, Any]:
        assert change.old
        metadata = {**change.old["metadata"], "resourceVersion": str(change.revision)}
        return {**change.old, "metadata": metadata}
