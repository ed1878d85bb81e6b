"""Merging a pod template into ours, as `kubectl patch` would by its strategic rules.

Mappings merge by key, the lists below by the key that names their items, other lists are replaced,
and null removes. The order of ours comes first, so that equal input gives equal output and a
reconciliation without a change rolls no pods. Rejected: the whole of Kubernetes' strategic merge
with its directives (`$patch`), which nobody writes by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists that merge by item, with the key that names an item."""


def merged(base: Any, patch: Any, field: str = "") -> Any:
    """`base` with `patch` laid over it; neither is changed."""
    if isinstance(base, Mapping) and isinstance(patch, Mapping):
        return _mappings(base, patch)
    key = merge_key(field, base, patch)
    return patch if key is None else _lists(base, patch, key)


def merge_key(field: str, *lists: Any) -> str | None:
    """The key that identifies the items of these lists; None when there is none."""
    key = _MERGE_KEYS.get(field)
    return key if key is not None and all(_named(items, key) for items in lists) else None


def _mappings(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in base.items() if patch.get(name, value) is not None}
    for name, value in patch.items():
        if value is not None:
            known = base[name] if name in base else _nothing(value)
            result[name] = merged(known, value, name)
    return result


def _lists(base: list[Any], patch: list[Any], key: str) -> list[Any]:
    by_key = {item[key]: item for item in base}
    for item in patch:
        known = by_key.get(item[key])
        by_key[item[key]] = _mappings({} if known is None else known, item)
    return list(by_key.values())


def _named(items: Any, key: str) -> bool:
    return isinstance(items, list) and all(
        isinstance(item, Mapping) and isinstance(item.get(key), str | int) for item in items
    )


def _nothing(value: Any) -> Any:
    """What a value is laid over where there is nothing, so that its nulls remove themselves."""
    return type(value)() if isinstance(value, dict | list) else None
