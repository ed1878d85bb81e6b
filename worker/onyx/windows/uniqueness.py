"""Which values of `uniquenessKey` were seen: a bounded filter that forgets the oldest.

For sources that repeat themselves, as in the original: keys lie in a fixed number of buckets; when
the newest is full the oldest is forgotten. One set has all known keys, so a look-up does
not ask every bucket. Keeping all keys was rejected: nothing would bound the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from onyx.windows.groups import group_value, hashable_key, hashable_keys

BUCKETS = 10
BUCKET_KEYS_MAX = 10_000
"""The keys of one shard: a grouped task remembers up to 128 times 10 times as many keys."""


class UniqueKeys:
    """The unique keys of one shard. Not thread-safe."""

    def __init__(self, bucket_keys_max: int = BUCKET_KEYS_MAX) -> None:
        self._bucket_keys_max = bucket_keys_max
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
