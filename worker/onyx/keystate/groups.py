"""Group keys that can be looked up in a dict, and the user's values back from them.

A user's key may be a list or a dict, and `1`, `True` and `"1"` are three groups though Python says
`1 == True`. Strings, ints, bytes and None stand for themselves, which is nearly always the case and
costs a look at their types; a float that is whole for the int that it equals. Everything else is
wrapped with its canonical bytes (`flow/groups/keys`), and the whole numbers in it become ints too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onyx.flow.columns.values import python_values
from onyx.flow.groups.keys import (
    PLAIN_KEYS,
    SHARDS,
    column_hashes,
    encoded_hash,
    key_bytes,
    shard_of,
)

_INTS = range(-(2**63), 2**64)
"""The ints that a segment may have."""
SHARDS_REMEMBERED_MAX = 262_144
"""Groups whose shard is remembered; beyond it all are forgotten and computed again."""


Shorts = NDArray[np.int16]
Keys = dict[Any, None]
"""Group keys in order: a set that does not depend on how they are hashed."""


class GroupKey:
    """A key that does not stand for itself: equal exactly when it is the same group."""

    __slots__ = ("_bytes", "_hash", "value")

    def __init__(self, value: Any) -> None:
        self._bytes = key_bytes(value)
        self.value = _with_ints(value)
        self._hash = hash(self._bytes)

    @property
    def shard(self) -> int:
        """What `shard_of` gives of the value, which need not be encoded again."""
        return encoded_hash(self._bytes) % SHARDS

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return type(other) is GroupKey and other._bytes == self._bytes

    def __repr__(self) -> str:
        return f"GroupKey({self.value!r})"


def _with_ints(value: Any) -> Any:
    """A key with ints for the numbers in it that equal one. Of equal keys that several peers meet
    first, or of which Spark takes one, all are shown alike then."""
    kind = type(value)
    if isinstance(value, float | Decimal):
        whole = isfinite(value) and value == int(value)
        return int(value) if whole and int(value) in _INTS else value
    if kind is dict:
        values = value.values()
        known = PLAIN_KEYS.issuperset(map(type, values))
        return value if known else {key: _with_ints(each) for key, each in value.items()}
    if kind is list or kind is tuple:
        return value if is_plain(value) else kind(map(_with_ints, value))
    return value


def is_plain(values: Sequence[Any]) -> bool:
    """Whether all stand for themselves."""
    return PLAIN_KEYS.issuperset(map(type, values))


def hashable_keys(values: list[Any]) -> list[Any]:
    """For each value of a group key one that a dict can look up; the same list, if that is all
    that they are.

    Raises:
        UserError: a key is or holds NaN, or something that has no canonical form.
    """
    if is_plain(values):
        return values
    return [hashable_key(value) for value in values]


def hashable_key(value: Any) -> Any:
    """The hashable key for one value."""
    if type(value) in PLAIN_KEYS:
        return value
    key = GroupKey(value)
    return key.value if type(key.value) is int else key


def group_value(key: Any) -> Any:
    """The user's value of what `hashable_key` gave."""
    return key.value if type(key) is GroupKey else key


def dump_key(key: Any) -> Any:
    """A key as plain data, to be stored."""
    return group_value(key)


def dump_keys(keys: list[Any]) -> list[Any]:
    """The dump for many."""
    return keys if is_plain(keys) else [dump_key(key) for key in keys]


def load_key(data: Any) -> Any:
    """The key from what `dump_key` gave."""
    return hashable_key(data)


def load_keys(data: Sequence[Any]) -> Sequence[Any]:
    """The load for many."""
    return data if is_plain(data) else [load_key(each) for each in data]


def slices_of(shards: Shorts) -> dict[int, slice]:
    """Where each shard has its rows, of rows that are ordered by shard."""
    firsts = np.flatnonzero(np.diff(shards, prepend=shards[:1] - 1))
    bounds = [*firsts.tolist(), len(shards)]
    return dict(zip(shards[firsts].tolist(), map(slice, bounds, bounds[1:]), strict=True))


def different(shards: Shorts) -> list[int]:
    """The shards that there are, in order."""
    found: list[int] = np.flatnonzero(np.bincount(shards)).tolist()
    return found


class Shards(dict[Any, int]):
    """The shard of each group, remembered; `known` are all shards that have come up."""

    def __init__(self, shard_of: Callable[[Any], int]) -> None:
        super().__init__()
        self._shard_of = shard_of
        self.known: dict[int, None] = {}

    def __missing__(self, key: Any) -> int:
        if len(self) >= SHARDS_REMEMBERED_MAX:
            self.clear()
        if type(key) is GroupKey and self._shard_of is shard_of:
            shard = key.shard
        else:
            shard = self._shard_of(group_value(key))
        self[key] = shard
        self.known[shard] = None
        return shard

    def apart(self) -> Shards:
        """Shards by the same rule, of groups that may be another peer's."""
        return Shards(self._shard_of)

    def learn(self, keys: Sequence[Any], shards: Sequence[int]) -> None:
        """The shards of some groups, which are not to be computed."""
        if len(self) + len(keys) > SHARDS_REMEMBERED_MAX:
            self.clear()
        self.update(zip(keys, shards, strict=True))

    def of_column(self, column: pa.Array) -> Shorts:
        """The shard of each of different groups, all ints or all text."""
        hashes = column_hashes(column) if self._shard_of is shard_of else None
        if hashes is None:
            return np.fromiter(map(self.__getitem__, python_values(column)), np.int16, len(column))
        found = (hashes % np.uint64(SHARDS)).astype(np.int16)
        self.known.update(dict.fromkeys(different(found)))
        return found

    def split(self, keys: Sequence[Any]) -> Iterator[tuple[int, list[int]]]:
        """Each shard that groups are in, with the indices of its groups, in order."""
        indices, runs = self.runs(keys)
        for shard, first, end in runs:
            yield shard, indices[first:end]

    def runs(self, keys: Sequence[Any]) -> tuple[list[int], Iterator[tuple[int, int, int]]]:
        """The indices of groups ordered by their shards, then as they are; and each shard with the
        first of its indices and the one behind its last."""
        numbers = np.fromiter(map(self.__getitem__, keys), np.uint16, len(keys))
        order = np.argsort(numbers, kind="stable")  # two bytes are sorted without comparing
        numbers = numbers[order]
        firsts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] + 1))
        bounds = [*firsts.tolist(), len(keys)]
        return order.tolist(), zip(numbers[firsts].tolist(), bounds, bounds[1:], strict=False)

    def forget(self, shards: Collection[int]) -> None:
        """Shards belong to another peer now."""
        for shard in shards:
            self.known.pop(shard, None)
        self.clear()


def only_shard(_: Any) -> int:
    """The key group of what is not split."""
    return 0
