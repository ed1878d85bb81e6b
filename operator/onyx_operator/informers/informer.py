"""What is known of the objects of one kind: by the watch as it happens, by lists now and then.

A list puts right what a watch has missed, and shows what a watch owes. An object counts as gone
only when the watch says so, or when it was known before a list began and the list does not have it:
what the API server refuses to list, and namespaces that the operator no longer looks after, are
gone for nobody.

The objects are kept as they were seen last, so that a look at one costs no request. They come from
the watches and from the answers to our own writes. An older version never replaces a newer one: the
event of our own write may come after the answer to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from onyx_operator.authors import last_writer
from onyx_operator.informers.cell import ALL
from onyx_operator.kube import Kube, Object, Resource
from onyx_operator.liveness import OperatorLiveness
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.work_queue import ObjectKey

Listener = Callable[[ObjectKey, Object, bool], None]
"""Called with each object that has changed or is listed: its key, itself, whether it is gone."""


class Informer:
    """What the API server holds of some kinds. Belongs to one event loop.

    Args:
        interval_s: period at which all objects are listed, and thereby looked at again.
    """

    def __init__(
        self,
        resource: Resource,
        interval_s: float,
        liveness: OperatorLiveness,
        metrics: OperatorMetrics,
    ) -> None:
        self.resource = resource
        self.interval_s = interval_s
        self.store = Store()
        self._liveness, self._metrics = liveness, metrics
        self._listeners: list[Listener] = []
        self._listed: list[Callable[[], None]] = []
        self._watched: dict[str, WatchDebts] = {}
        self._covered: set[str] = set()
        """Scopes whose last list has succeeded."""

    def listen(self, listener: Listener) -> None:
        """Call this with all that is known, with what changes, and with all at each list."""
        self._listeners.append(listener)
        for key, body in self.store.items():
            listener(key, dict(body), False)

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

    def _watch_of(self, scope: str) -> WatchDebts:
        where = f" in {scope}" if scope else ""
        name = f"{self.resource.kind}{where}"
        return self._watched.setdefault(scope, WatchDebts(name, self._liveness))

    def _take(self, body: Mapping[str, Any], *, gone: bool) -> None:
        key = self.store.drop(body) if gone else self.store.put(body)
        for listener in self._listeners:
            listener(key, dict(body), gone)


class Store:
    """Objects of one kind by their key."""

    def __init__(self) -> None:
        self._objects: dict[ObjectKey, Object] = {}

    def put(self, body: Mapping[str, Any]) -> ObjectKey:
        """Take over an object unless a newer version of it is known."""
        key = key_of(body)
        known = self._objects.get(key)
        if known is None or not is_newer(known, body):
            self._objects[key] = trimmed(body)
        return key

    def drop(self, body: Mapping[str, Any]) -> ObjectKey:
        """Forget an object that is gone, unless another has its name already."""
        key = key_of(body)
        known = self._objects.get(key)
        if known is not None and known["metadata"]["uid"] == body["metadata"]["uid"]:
            del self._objects[key]
        return key

    def get(self, key: ObjectKey) -> Object | None:
        """The object as seen last; None when it is unknown."""
        return self._objects.get(key)

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(tuple(self._objects))

    def items(self) -> Iterator[tuple[ObjectKey, Object]]:
        """All objects, as of now."""
        yield from tuple(self._objects.items())


def key_of(body: Mapping[str, Any]) -> ObjectKey:
    """Namespace and name of an object."""
    metadata = body["metadata"]
    return ObjectKey(metadata["namespace"], metadata["name"])


class WatchDebts:
    """What a watch owes: the objects of lists of which it had no event (`behind` of liveness)."""

    def __init__(self, name: str, liveness: OperatorLiveness) -> None:
        self._name = name
        self._liveness = liveness
        self._versions: dict[ObjectKey, int] = {}
        self._owed: dict[ObjectKey, int] = {}

    def event(self, body: Mapping[str, Any], *, gone: bool = False) -> None:
        """The watch had an event about an object."""
        key = key_of(body)
        if gone:
            self._versions.pop(key, None)
            self._owed.pop(key, None)
        else:
            self._versions[key] = version(body)
            if self._owed.get(key, 0) <= version(body):
                self._owed.pop(key, None)
        self._liveness.behind(self._name, bool(self._owed))

    def listed(self, bodies: Iterable[Mapping[str, Any]]) -> bool:
        """A list shows these objects: a newer version than the watch's is owed. True if none is."""
        self._owed = {
            key_of(body): version(body)
            for body in bodies
            if version(body) > self._versions.get(key_of(body), 0)
        }
        self._liveness.behind(self._name, bool(self._owed))
        return not self._owed

    def broken(self) -> None:
        """The watch has ended: it owes all objects again."""
        self._versions.clear()
        self._liveness.behind(self._name, True)

    def excused(self) -> None:
        """The watch owes nothing while nobody can list; its events so far stay counted."""
        self._owed.clear()
        self._liveness.behind(self._name, False)


def version(body: Mapping[str, Any]) -> int:
    """The version of an object: a growing number, which the API promises since Kubernetes 1.35 and
    has always been; 0 when it is none."""
    text = str(body["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def is_newer(body: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether `body` is a later version than `other`, of the same object."""
    same = body["metadata"]["uid"] == other["metadata"]["uid"]
    return same and version(body) > version(other) > 0


def trimmed(body: Mapping[str, Any]) -> Object:
    """An object without what nobody here reads and takes the most room."""
    return {**body, "metadata": {**body["metadata"], "managedFields": last_writer(body)}}
