"""Values of `uniquenessKey` on the local disk, in the RocksDB of the windows of the task.

As there, the disk is a cache of the state log and no more. Each value is there twice: by itself, to
be looked up, with a bloom filter before the disk; and by its number, because the oldest are
forgotten and a snapshot is in order. Numbers of a shard that are known follow each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from onyx.codec.values import decode_values, encode_values
from onyx.flow.groups.keys import key_bytes
from onyx.keystate.buckets import Holder
from onyx.keystate.groups import dump_key, group_value, hashable_key, hashable_keys
from onyx.keystate.uniqueness import BUCKETS, Filters, FiltersInMemory, bucket_size
from onyx.settings import StateSettings
from onyx.state.local.spilled import Spill

_NUMBER_BYTES = 8


def filters(settings: StateSettings, holder: Holder) -> Filters:
    """Where the unique keys of a task are: where its other states are."""
    if isinstance(holder, Spill):
        return SpilledFilters(holder, settings.unique_keys_max)
    return FiltersInMemory(settings.unique_keys_max)


class SpilledFilters:
    """Implements `keystate.uniqueness.Filters`."""

    def __init__(self, spill: Spill, keys_max: int) -> None:
        self._spill = spill  # whose database is open as long as somebody has it
        self._keys_max = keys_max
        self._by_shard: dict[int, _Keys] = {}
        self._news: defaultdict[int, list[Any]] = defaultdict(list)

    def first_seen(self, shard: int, values: Sequence[Any]) -> list[bool]:
        """For each value whether it comes for the first time."""
        keys = hashable_keys(list(values))
        fresh = list(map(self._of(shard).add, keys))
        self._news[shard] += [group_value(key) for key in compress(keys, fresh)]
        return fresh

    def has_seen(self, shard: int, value: Any) -> bool:
        """Whether a value is known."""
        return self._of(shard).has(hashable_key(value))

    def take_news(self) -> dict[int, list[Any]]:
        """By shard the values that became known since the last call."""
        news, self._news = self._news, defaultdict(list)
        return {shard: values for shard, values in news.items() if values}

    def restore(self, shard: int, values: Iterable[Any]) -> None:
        """Values that were recorded."""
        keys = self._of(shard)
        for key in hashable_keys(list(values)):
            keys.add(key)

    def freeze(self) -> Callable[[int], list[Any]]:
        """What gives all values of a shard, read when it is asked."""
        names = {shard: each.range() for shard, each in self._by_shard.items()}
        return _Frozen(self._spill, names).values

    def _of(self, shard: int) -> _Keys:
        if shard not in self._by_shard:
            keys = _Keys(self._spill, bucket_size(self._keys_max))
            self._by_shard[shard] = keys
        return self._by_shard[shard]


class _Frozen:
    """Keys as they were at one moment, for one thread at a time."""

    def __init__(self, spill: Spill, names: Mapping[int, tuple[bytes, bytes]]) -> None:
        self._spill = spill  # whose database is open as long as somebody has it
        # An iterator sees what there was when it was made.
        self._found = spill.db.iter()
        self._names = names

    def values(self, shard: int) -> list[Any]:
        """All values of a shard, oldest first."""
        return list(_read(self._found, *self._names[shard])) if shard in self._names else []


class _Keys:
    """The unique keys of one shard."""

    def __init__(self, spill: Spill, bucket_keys_max: int) -> None:
        self._db = spill.db
        self._by_value, self._by_number = spill.new_prefix(), spill.new_prefix()
        self._bucket_keys_max = bucket_keys_max
        self._first = self._next = 0
        """The number of the oldest value that is known, and of the next one."""

    def add(self, key: Any) -> bool:
        """Whether it is new; from now on it is known."""
        # One at a time: a batch has a few keys of each shard, for which writing and looking up
        # several at once takes as long.
        name = self._name(key)
        if self._db.get(name) is not None:
            return False
        if self._next - self._first >= BUCKETS * self._bucket_keys_max:
            self._forget()
        self._db.put(name, b"")
        self._db.put(self._numbered(self._next), encode_values([dump_key(key)]))
        self._next += 1
        return True

    def has(self, key: Any) -> bool:
        """Whether it is known."""
        return self._db.get(self._name(key)) is not None

    def range(self) -> tuple[bytes, bytes]:
        """The name of the oldest value, and the one behind the newest."""
        return self._numbered(self._first), self._numbered(self._next)

    def _forget(self) -> None:
        """The oldest bucket goes."""
        end = self._first + self._bucket_keys_max
        assert end <= self._next, "only what is known is forgotten"
        first_name, end_name = self._numbered(self._first), self._numbered(end)
        for key in hashable_keys(list(_read(self._db.iter(), first_name, end_name))):
            self._db.delete(self._name(key))
        self._db.delete_range(first_name, end_name)
        self._first = end

    def _name(self, key: Any) -> bytes:
        return self._by_value + key_bytes(group_value(key))

    def _numbered(self, number: int) -> bytes:
        return self._by_number + number.to_bytes(_NUMBER_BYTES, "big")


def _read(found: Any, first: bytes, end: bytes) -> Iterator[Any]:
    found.seek(first)
    while found.valid() and found.key() < end:
        yield from decode_values(found.value())
        found.next()
