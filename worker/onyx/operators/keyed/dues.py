"""Keys by the time at which somebody has to look at them.

What is due soon is in a heap, and what is due later in slots of a minute or of a day, which are
buckets: with `ONYX_STATE_MEMORY_EXTENTS_MAX` they are on the local disk. A slot that has begun is
opened. Each slot has a key once, with the earliest time: whoever looks then finds what else the key
has, and puts it here again. So a key whose time moves on and on costs nothing until the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

from onyx.keystate.buckets import Bucket, Form, Holder
from onyx.keystate.dues import Dues
from onyx.keystate.groups import Shards

MINUTE_MS = 60_000
DAY_MS = 86_400_000
_NEVER = 2**63
_FORM = Form(lambda: _NEVER, lambda due: due, lambda key, due: due, is_plain=True)


class DueKeys:
    """Keys of one clock. Not recorded: whoever has them says it again after a restart."""

    def __init__(self, shards: Shards, holder: Holder) -> None:
        self._soon: Dues[Any] = Dues()
        self._minutes = _Slots(MINUTE_MS, shards, holder)
        self._days = _Slots(DAY_MS, shards, holder)

    def put(self, due_ms: int, key: Any) -> None:
        """A key is due at this time, unless it is so before."""
        if due_ms // MINUTE_MS <= self._minutes.opened:
            self._soon.put_earliest(key, due_ms)
        elif due_ms // DAY_MS <= self._days.opened:
            self._minutes.put(due_ms, key)
        else:
            self._days.put(due_ms, key)

    def earliest_ms(self) -> int | None:
        """When `take` has something to do: perhaps only to open a slot."""
        found = (self._soon.earliest(), self._minutes.begins_ms(), self._days.begins_ms())
        return min((int(each) for each in found if each is not None), default=None)

    def take(self, now_ms: int) -> Iterator[tuple[int, Any]]:
        """Keys that are due by now, earliest first, each with its time. Meanwhile others may be
        put here."""
        while True:
            for due_ms, key in self._days.open(now_ms):
                self.put(due_ms, key)
            for due_ms, key in self._minutes.open(now_ms):
                self.put(due_ms, key)
            earliest = self._soon.earliest()
            if earliest is None or earliest > now_ms:
                return
            key = next(self._soon.take(earliest))
            yield int(earliest), key


class _Slots:
    """Keys by slots of one width."""

    def __init__(self, width_ms: int, shards: Shards, holder: Holder) -> None:
        self._width_ms = width_ms
        self._shards = shards
        self._holder = holder
        self._buckets: dict[int, Bucket] = {}
        self._numbers: list[int] = []
        """A heap."""
        self.opened = -_NEVER
        """The last slot that was opened: what is due in it or before is put somewhere else."""

    def put(self, due_ms: int, key: Any) -> None:
        """A key is due in a slot that was not opened."""
        number = due_ms // self._width_ms
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = self._holder.bucket(_FORM, self._shards)
            heappush(self._numbers, number)
        if due_ms < bucket[key]:
            bucket[key] = due_ms

    def begins_ms(self) -> int | None:
        """When the next slot begins."""
        return self._numbers[0] * self._width_ms if self._numbers else None

    def open(self, now_ms: int) -> Iterator[tuple[int, Any]]:
        """What is in the slots that have begun, which are gone then."""
        while self._numbers and self._numbers[0] * self._width_ms <= now_ms:
            self.opened = heappop(self._numbers)
            bucket = self._buckets.pop(self.opened)
            for key, due_ms in bucket.items():
                yield due_ms, key
            bucket.free()
