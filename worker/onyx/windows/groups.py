"""Group keys that can be looked up in a dict, and the user's values back from them.

A user's key may be a list or a dict, and `1`, `True` and `"1"` are three groups though Python says
`1 == True`. Strings, ints, bytes and None stand for themselves, which is nearly always the case and
costs a look at their types; everything else is wrapped with its canonical bytes (`flow/grouping`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyx.flow.grouping import key_bytes

_PLAIN = frozenset({str, int, bytes, type(None)})
"""Exact types of which no two values of different groups are equal."""


class GroupKey:
    """A key that does not stand for itself: equal exactly when it is the same group."""

    __slots__ = ("_bytes", "_hash", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._bytes = key_bytes(value)
        self._hash = hash(self._bytes)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return type(other) is GroupKey and other._bytes == self._bytes

    def __repr__(self) -> str:
        return f"GroupKey({self.value!r})"


def hashable_keys(values: Sequence[Any]) -> list[Any]:
    """For each value of a group key one that a dict can look up.

    Raises:
        UserError: a key is or holds a float, or something that has no canonical form.
    """
    if _PLAIN.issuperset(map(type, values)):
        return list(values)
    return [hashable_key(value) for value in values]


def hashable_key(value: Any) -> Any:
    """The same for one value."""
    return value if type(value) in _PLAIN else GroupKey(value)


def group_value(key: Any) -> Any:
    """The user's value of what `hashable_key` gave."""
    return key.value if type(key) is GroupKey else key
