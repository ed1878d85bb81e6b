"""Timers of a window: one for each trigger with a period and each shard, from its first segment on.

By shard, because shards move between peers, and a timer goes on where it was. Timers that are found
due together are due together from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from onyx.keystate.dues import Dues
from onyx.keystate.records import Records, TimerDue, append
from onyx.windows.triggers.trigger import Trigger


class Timers:
    """When the triggers of a window fire by the clock, in milliseconds since the epoch."""

    def __init__(self, window: str, triggers: Iterable[Trigger]) -> None:
        self._window = window
        self._triggers = {each.name: each for each in triggers if each.period_ms is not None}
        self._dues: Dues[tuple[str, int]] = Dues()
        self._changed: dict[tuple[str, int], None] = {}

    def __bool__(self) -> bool:
        return bool(self._triggers)

    def start(self, shards: Iterable[int], now_ms: int) -> None:
        """Shards have got segments: timers that are not running yet run from now on."""
        for shard in shards:
            for trigger in self._triggers.values():
                if (trigger.name, shard) not in self._dues.at:
                    self.arm(trigger, shard, now_ms)

    def due(self, now_ms: int) -> list[tuple[Trigger, list[int]]]:
        """Triggers that were due before `now_ms`, with the shards; they stay due until armed."""
        at = self._dues.at
        due = sorted((each for each in at if at[each] < now_ms), key=at.__getitem__)
        found = [
            (trigger, [shard for name, shard in due if name == trigger.name])
            for trigger in self._triggers.values()
        ]
        return [(trigger, shards) for trigger, shards in found if shards]

    def restart(self, shards: Collection[int], now_ms: int) -> None:
        """Triggers have fired for another reason: their timers are due a period later."""
        for trigger in self._triggers.values():
            for shard in shards:
                if (trigger.name, shard) in self._dues.at:
                    self.arm(trigger, shard, now_ms)

    def next_tick_ms(self) -> int | None:
        """When something is due; None when no timer runs."""
        due = self._dues.earliest()
        return None if due is None else int(due) + 1

    def arm(self, trigger: Trigger, shard: int, now_ms: int) -> None:
        """A trigger has fired for a shard, or begins: it is due a period later."""
        assert trigger.period_ms is not None
        self._dues.put((trigger.name, shard), now_ms + trigger.period_ms)
        self._changed[trigger.name, shard] = None

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        self._append(records, self._changed)
        self._changed = {}

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add the timers of some shards."""
        self._append(records, [each for each in self._dues.at if each[1] in shards])

    def restore(self, shard: int, record: TimerDue) -> None:
        """Apply a record; that of a trigger which is not declared any more is left out."""
        if record.trigger in self._triggers:
            self._dues.put((record.trigger, shard), record.due_ms)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now."""
        for each in [each for each in self._dues.at if each[1] in shards]:
            self._dues.remove(each)
            self._changed.pop(each, None)

    def _append(self, records: Records, timers: Iterable[tuple[str, int]]) -> None:
        for name, shard in timers:
            due_ms = int(self._dues.at[name, shard])
            append(records, shard, TimerDue(self._window, name, due_ms))
