"""Which values of `uniquenessKey` were seen: a bounded filter that forgets the oldest.

For sources that repeat themselves, as in the original: keys lie in a fixed number of buckets; when
the newest is full the oldest is forgotten. One set has all known keys, so a look-up does
not ask every bucket. Keeping all keys was rejected: nothing would bound the memory.

Of more keys than memory has room for, the filter is on the local disk (`state/local/spilled_keys`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from onyx.keystate.groups import group_value, hashable_key, hashable_keys

BUCKETS = 10
KEYS_MAX = 100_000
"""The keys of one shard: a grouped task remembers up to 128 times as many."""


def bucket_size(keys_max: int) -> int:
    """Keys of a bucket, of so many that may be known."""
    return max(1, keys_max // BUCKETS)


class UniqueKeys:
    """The unique keys of one shard. Not thread-safe."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        """`keys_max`: keys that may be known, rounded down to whole buckets."""
        self._bucket_keys_max = bucket_size(keys_max)
        self._known: set[Any] = set()
        self._buckets: deque[list[Any]] = deque([[]])
        self._news: list[Any] = []

    def first_seen(self, values: Sequence[Any]) -> list[bool]:
        """For each value whether it comes for the first time; from now on it is known.

        Raises:
            UserError: a value has no canonical form (`groups.hashable_keys`).
        """
        fresh = []
        for key in hashable_keys(list(values)):
            is_new = key not in self._known
            fresh.append(is_new)
            if is_new:
                self._add(key)
                self._news.append(key)
        return fresh

    def has_seen(self, value: Any) -> bool:
        """Whether a value is known; nothing changes."""
        return hashable_key(value) in self._known

    def take_news(self) -> list[Any]:
        """The users' values that became known since the last call, in order."""
        news, self._news = self._news, []
        return [group_value(key) for key in news]

    def restore(self, values: Iterable[Any]) -> None:
        """Values of `take_news` or `snapshot`, in order."""
        for key in hashable_keys(list(values)):
            if key not in self._known:
                self._add(key)

    def snapshot(self) -> list[Any]:
        """All values that are known, oldest first."""
        return [group_value(key) for bucket in self._buckets for key in bucket]

    def _add(self, key: Any) -> None:
        if len(self._buckets[-1]) >= self._bucket_keys_max:
            self._buckets.append([])
            if len(self._buckets) > BUCKETS:
                self._known.difference_update(self._buckets.popleft())
        self._buckets[-1].append(key)
        self._known.add(key)


class Filters(Protocol):
    """The unique keys of all shards of a task on one peer. Not thread-safe."""

    def first_seen(self, shard: int, values: Sequence[Any]) -> list[bool]:
        """For each value whether it comes for the first time; from now on it is known. Raises like
        `UniqueKeys.first_seen`."""
        ...

    def has_seen(self, shard: int, value: Any) -> bool:
        """Whether a value is known; nothing changes."""
        ...

    def take_news(self) -> dict[int, list[Any]]:
        """By shard the users' values that became known since the last call, in order."""
        ...

    def restore(self, shard: int, values: Iterable[Any]) -> None:
        """Values of `take_news` or `freeze`, in order."""
        ...

    def freeze(self) -> Callable[[int], list[Any]]:
        """What gives all values of a shard that are known now, oldest first: later, from any
        thread, one at a time."""
        ...


class FiltersInMemory:
    """All keys are in memory."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._by_shard: dict[int, UniqueKeys] = {}

    def first_seen(self, shard: int, values: Sequence[Any]) -> list[bool]:
        """For each value whether it comes for the first time."""
        return self._of(shard).first_seen(values)

    def has_seen(self, shard: int, value: Any) -> bool:
        """Whether a value is known."""
        return self._of(shard).has_seen(value)

    def take_news(self) -> dict[int, list[Any]]:
        """By shard the values that became known since the last call."""
        return {shard: news for shard, each in self._by_shard.items() if (news := each.take_news())}

    def restore(self, shard: int, values: Iterable[Any]) -> None:
        """Values that were recorded."""
        self._of(shard).restore(values)

    def freeze(self) -> Callable[[int], list[Any]]:
        """What gives all values of a shard."""
        frozen = {shard: each.snapshot() for shard, each in self._by_shard.items()}
        return lambda shard: frozen.get(shard, [])

    def _of(self, shard: int) -> UniqueKeys:
        if shard not in self._by_shard:
            self._by_shard[shard] = UniqueKeys(self._keys_max)
        return self._by_shard[shard]
