"""What is known of the objects of one kind: by the watch as it happens, by lists now and then.

A list puts right what a watch has missed, and shows what a watch owes. An object counts as gone
only when the watch says so, or when it was known before a list began and the list does not have it:
what the API server refuses to list, and namespaces that the operator no longer looks after, are
gone for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onyx_operator.informers.cell import ALL
from onyx_operator.informers.store import Store, key_of
from onyx_operator.informers.watched import Watched
from onyx_operator.kube import Kube, Object, Resource
from onyx_operator.liveness import Liveness
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.work_queue import Key

Listener = Callable[[Key, Object, bool], None]
"""Called with each object that has changed or is listed: its key, itself, whether it is gone."""


class Informer:
    """What the API server holds of some kinds. Belongs to one event loop.

    Args:
        interval_s: period at which all objects are listed, and thereby looked at again.
    """

    def __init__(
        self, resource: Resource, interval_s: float, liveness: Liveness, metrics: OperatorMetrics
    ) -> None:
        self.resource = resource
        self.interval_s = interval_s
        self.store = Store()
        self._liveness, self._metrics = liveness, metrics
        self._listeners: list[Listener] = []
        self._listed: list[Callable[[], None]] = []
        self._watched: dict[str, Watched] = {}
        self._covered: set[str] = set()
        """Scopes whose last list has succeeded."""

    def listen(self, listener: Listener) -> None:
        """Call this with whatever changes, and with everything at each list."""
        self._listeners.append(listener)

    def after_list(self, listener: Callable[[], None]) -> None:
        """Call this after each list."""
        self._listed.append(listener)

    def event(self, scope: str, body: Object, *, gone: bool) -> None:
        """The watch of a scope has an event about an object."""
        self._metrics.watch_event(self.resource.kind)
        self._watch_of(scope).event(body, gone=gone)
        self._take(body, gone=gone)

    async def list(self, kube: Kube, scope: str) -> None:
        """List all objects of a scope.

        Raises:
            KubeError: the API server refuses.
            Unavailable: it cannot be reached.
        """
        before = {key: body for key, body in self.store.items() if scope in (ALL, key.namespace)}
        listed = await kube.list_all(self.resource, scope or None)
        self._covered.add(scope)
        if self._watch_of(scope).listed(listed):
            self._metrics.watch_event(self.resource.kind)
        for body in listed:
            self._take(body, gone=False)
        there = {key_of(body): body["metadata"]["uid"] for body in listed}
        for key, body in before.items():
            if there.get(key) != body["metadata"]["uid"]:
                self._take(body, gone=True)
        for listener in self._listed:
            listener()

    def covers(self, namespace: str) -> bool:
        """Whether all objects of a namespace were known a moment ago, by a list."""
        return ALL in self._covered or namespace in self._covered

    def broken(self, scope: str) -> None:
        """The watch of a scope has ended, though the API server lets it be listed."""
        self._watch_of(scope).broken()

    def excused(self, scope: str) -> None:
        """The API server cannot be asked: nothing is owed by the watch."""
        self._covered.discard(scope)
        if scope in self._watched:
            self._watched[scope].excused()

    def leave(self, scope: str) -> None:
        """A namespace is looked after no more: nothing is known of its objects from now on."""
        self.excused(scope)
        self._watched.pop(scope, None)
        for key, body in self.store.items():
            if key.namespace == scope:
                self.store.drop(body)

    def _watch_of(self, scope: str) -> Watched:
        where = f" in {scope}" if scope else ""
        name = f"{self.resource.kind}{where}"
        return self._watched.setdefault(scope, Watched(name, self._liveness))

    def _take(self, body: Mapping[str, Any], *, gone: bool) -> None:
        key = self.store.drop(body) if gone else self.store.put(body)
        for listener in self._listeners:
            listener(key, dict(body), gone)
