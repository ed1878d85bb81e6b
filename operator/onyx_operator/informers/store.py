"""The objects as they were seen last, so that a look at one costs no request.

Fed by the watches and by the answers to our own writes. An older version never replaces a newer
one: the event of our own write may come after the answer to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onyx_operator.authors import last_writer
from onyx_operator.kube import Object
from onyx_operator.work_queue import Key


class Store:
    """Objects of one kind by their key."""

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}

    def put(self, body: Mapping[str, Any]) -> Key:
        """Take over an object unless a newer version of it is known."""
        key = key_of(body)
        known = self._objects.get(key)
        if known is None or not is_newer(known, body):
            self._objects[key] = trimmed(body)
        return key

    def drop(self, body: Mapping[str, Any]) -> Key:
        """Forget an object that is gone, unless another has its name already."""
        key = key_of(body)
        known = self._objects.get(key)
        if known is not None and known["metadata"]["uid"] == body["metadata"]["uid"]:
            del self._objects[key]
        return key

    def get(self, key: Key) -> Object | None:
        """The object as seen last; None when it is unknown."""
        return self._objects.get(key)

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self._objects))

    def items(self) -> Iterator[tuple[Key, Object]]:
        """All objects, as of now."""
        yield from tuple(self._objects.items())


def key_of(body: Mapping[str, Any]) -> Key:
    """Namespace and name of an object."""
    metadata = body["metadata"]
    return Key(metadata["namespace"], metadata["name"])


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
    """Without what nobody here reads and takes the most room."""
    return {**body, "metadata": {**body["metadata"], "managedFields": last_writer(body)}}
