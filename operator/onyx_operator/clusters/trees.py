"""Objects of Kubernetes as trees: one laid over another, and whether one has what another says.
Pure.

A pod template is merged into ours as `kubectl patch` would, by its strategic rules: mappings merge
by key, the lists below by the key that names their items, other lists are replaced, and null
removes. The order of ours comes first, so that equal input gives equal output and a reconciliation
without a change rolls no pods. Rejected: the whole of Kubernetes' strategic merge with its
directives (`$patch`), which nobody writes by hand.

Drift is found by the same rules. Server-side apply leaves to others what we do not name, so an
object is right when it contains ours. What the API server writes differently (amounts, empty
values) counts as equal, else each look would find drift and mend nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
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
_AMOUNT = re.compile(r"([0-9]*\.?[0-9]+|[0-9]+\.)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_SUFFIXES = {
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
    **{unit: Decimal(1000) ** -power for power, unit in enumerate("mun", 1)},
}
_AMOUNT_FIELDS = ("requests", "limits")


def merged(base: Any, patch: Any, field: str = "") -> Any:
    """`base` with `patch` laid over it; neither is changed."""
    if isinstance(base, Mapping) and isinstance(patch, Mapping):
        return _mappings(base, patch)
    key = merge_key(field, base, patch)
    return patch if key is None else _lists(base, patch, key)


def contains(actual: Any, wanted: Any, field: str = "") -> bool:
    """Whether `actual` has all that `wanted` says."""
    if wanted in ("", None):
        return actual in ("", None)
    if wanted in ({}, []):
        return True
    if isinstance(wanted, Mapping):
        if not isinstance(actual, Mapping):
            return False
        same = _same_amount if field in _AMOUNT_FIELDS else contains
        return all(same(actual.get(key), value, key) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(actual, list) and _list_contains(actual, wanted, field)
    return bool(actual == wanted)


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


def _list_contains(actual: list[Any], wanted: list[Any], field: str) -> bool:
    key = merge_key(field, actual, wanted)
    if key is None:
        pairs = zip(actual, wanted, strict=False)
        return len(actual) == len(wanted) and all(contains(*pair) for pair in pairs)
    by_key = {each[key]: each for each in actual}
    return all(contains(by_key.get(each[key]), each) for each in wanted)


def _same_amount(actual: Any, wanted: Any, field: str) -> bool:
    return actual is not None and _amount(actual) == _amount(wanted)


def _amount(value: Any) -> Any:
    matched = _AMOUNT.fullmatch(str(value))
    if matched is None:
        return value
    number, unit = matched.groups()
    if unit in _SUFFIXES:
        return Decimal(number) * _SUFFIXES[unit]
    return Decimal(number + (unit or ""))
