"""Keys whose states nobody has changed for long lose them.

When that is due is recorded for each key. It is rounded up, so that a key that changes all the time
is recorded anew a few times in the period, and the states go a little later than they could.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onyx.keyed.dues import DueKeys
from onyx.keyed.store import KeyedStore

TOUCHED = ".touched"
STEPS = 16
"""How often in the period a key is recorded that changes all the time, at most."""


class Expiry:
    """When the keys of a task are due, by one clock."""

    def __init__(self, store: KeyedStore, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._step_ms = max(ttl_ms // STEPS, 1)
        self._touched = store.values(TOUCHED)
        self._dues = DueKeys(store.shards, store.holder)
        self._untimed: dict[Any, None] = {}
        """Keys that were changed before the clock had a time."""
        store.upon_restored(self._restored)

    def touch(self, key: Any, now_ms: int | None) -> None:
        """A state of a key has changed; None: event time has not begun."""
        due_ms = None if now_ms is None else self._due_ms(now_ms)
        before = self._touched.get(key, 0)
        if before == due_ms:
            return
        self._touched.put(key, due_ms)
        if due_ms is None:
            self._untimed[key] = None
        elif not before:
            self._dues.put(due_ms, key)

    def earliest_ms(self) -> int | None:
        """When `take` has something to do."""
        return self._dues.earliest_ms()

    def take(self, now_ms: int) -> Iterator[Any]:
        """Keys that are due by now, which are to lose their states."""
        untimed, self._untimed = self._untimed, {}
        for key in untimed:
            if self._touched.get(key, 0) is None:
                self.touch(key, now_ms)
        for _, key in self._dues.take(now_ms):
            due_ms = self._touched.get(key)
            if due_ms is None:
                continue
            if due_ms > now_ms:
                self._dues.put(due_ms, key)
                continue
            self._touched.remove(key)
            yield key

    def _due_ms(self, now_ms: int) -> int:
        return -(-(now_ms + self._ttl_ms) // self._step_ms) * self._step_ms

    def _restored(self) -> None:
        for key, due_ms in self._touched.items():
            if due_ms is None:
                self._untimed[key] = None
            else:
                self._dues.put(due_ms, key)
