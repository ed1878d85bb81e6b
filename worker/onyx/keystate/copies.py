"""Copies of what users' functions give and get, so that nobody changes what another one keeps.

`copy.deepcopy` takes some microseconds for a dict of a few values, several times what the user's
function takes that is called for each segment. Nearly all values are a dict or list of values that
nothing can change, or a list of such dicts, for which a shallow copy does the same.
"""

from __future__ import annotations

from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_UNCHANGEABLE = frozenset(
    {type(None), bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal}
)
"""Exact types: a subclass may hold anything."""


def copied(value: Any) -> Any:
    """A copy that shares nothing with the value that can be changed."""
    kind = type(value)
    if kind in _UNCHANGEABLE:
        return value
    if kind is dict and _UNCHANGEABLE.issuperset(map(type, value.values())):
        return value.copy()
    if kind is list:
        if _UNCHANGEABLE.issuperset(map(type, value)):
            return value.copy()
        return [copied(each) if type(each) is dict else deepcopy(each) for each in value]
    return deepcopy(value)


def copied_twice(value: Any) -> tuple[Any, Any]:
    """Two copies, which share nothing with each other either."""
    kind = type(value)
    if kind in _UNCHANGEABLE:
        return value, value
    if kind is list and _UNCHANGEABLE.issuperset(map(type, value)):
        return value.copy(), value.copy()
    return copied(value), copied(value)
