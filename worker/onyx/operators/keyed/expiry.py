"""Keys whose states nobody has changed for long lose them.

When that is due is recorded for each key. It is rounded up, so that a key that changes all the time
is recorded anew a few times in the period, and the states go a little later than they could.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onyx.keystate.names import TOUCHED
from onyx.operators.keyed.dues import DueKeys
from onyx.operators.keyed.store import KeyedStore

STEPS = 16
"""How often in the period a key is recorded that changes all the time, at most."""


class Expiry:
    """When the keys of a task are due, by the clock of the worker."""

    def __init__(self, store: KeyedStore, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._step_ms = max(ttl_ms // STEPS, 1)
        self._touched = store.values(TOUCHED)
        self._dues = DueKeys(store.shards, store.holder)
        store.upon_restored(self._restored)

    def touch(self, key: Any, now_ms: int) -> None:
        """A state of a key has changed."""
        due_ms = self._due_ms(now_ms)
        before = self._touched.get(key)
        if before == due_ms:
            return
        self._touched.put(key, due_ms)
        if before is None:
            self._dues.put(due_ms, key)

    def earliest_ms(self) -> int | None:
        """When `take` has something to do."""
        return self._dues.earliest_ms()

    def take(self, now_ms: int) -> Iterator[Any]:
        """Keys that are due by now, which are to lose their states."""
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
            self._dues.put(due_ms, key)
