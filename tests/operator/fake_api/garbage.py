"""What the garbage collector and the namespace controller of a real control plane do, at once.

The real ones take a moment; a test that must not rely on their haste says so by waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.operator.fake_api.kinds import Kind
from tests.operator.fake_api.store import Object
from tests.operator.fake_api.values import clone

if TYPE_CHECKING:
    from tests.operator.fake_api.registry import Registry


def _owners(value: Object) -> list[str]:
    return [each["uid"] for each in value["metadata"].get("ownerReferences", ())]


def is_abandoned(registry: Registry, value: Object) -> bool:
    """Has it owners, and are all of them gone?"""
    owners = _owners(value)
    return bool(owners) and not any(registry.store.has(uid) for uid in owners)


def collect(registry: Registry, uid: str) -> None:
    """Delete what this object owned and nobody else owns."""
    for key, value in registry.store.dependents(uid):
        others = [each for each in _owners(value) if each != uid]
        if not any(registry.store.has(other) for other in others):
            _delete(registry, registry.kinds[key], value)


def orphan(registry: Registry, uid: str) -> None:
    """Take the object out of the owners of its dependents."""
    for key, value in registry.store.dependents(uid):
        new = clone(value)
        references = new["metadata"].pop("ownerReferences")
        if left := [each for each in references if each["uid"] != uid]:
            new["metadata"]["ownerReferences"] = left
        registry.store.put(registry.kinds[key], new)


def empty_namespace(registry: Registry, namespace: str) -> None:
    """Delete all objects of a namespace."""
    for kind in tuple(registry.kinds.values()):
        if kind.namespaced:
            for value in registry.store.list(kind, namespace):
                _delete(registry, kind, value)


def _delete(registry: Registry, kind: Kind, value: Object) -> None:
    metadata = value["metadata"]
    if registry.store.get(kind, metadata.get("namespace", ""), metadata["name"]):
        registry.delete(kind, metadata.get("namespace", ""), metadata["name"])
