"""Does an object have what we said? The comparison that finds drift.

Server-side apply leaves to others what we do not name, so an object is right when it contains ours:
mappings key by key, named lists item by item, other lists as a whole. What the API server writes
differently (amounts, empty values) counts as equal, else each look would find drift and mend
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from onyx_operator.clusters.merge import merge_key

_AMOUNT = re.compile(r"([0-9]*\.?[0-9]+|[0-9]+\.)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_SUFFIXES = {
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
    **{unit: Decimal(1000) ** -power for power, unit in enumerate("mun", 1)},
}
_AMOUNT_FIELDS = ("requests", "limits")


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
