"""Timers of a window: one for each trigger with a period and each shard, from its first segment on.

By shard, because it is shards that move between peers: a timer goes on where it was. Those that are
found due together are due together from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from onyx.windows.dues import Dues
from onyx.windows.records import Record, Records, tell
from onyx.windows.triggers.trigger import CompiledTrigger


class Timers:
    """When the triggers of a window fire by the clock."""

    def __init__(self, window: str, triggers: Iterable[CompiledTrigger]) -> None:
        self._window = window
        self._triggers = [each for each in triggers if each.period_ms is not None]
        self._dues: Dues[tuple[str, int]] = Dues()
        self._changed: dict[tuple[str, int], None] = {}

    def __bool__(self) -> bool:
        return bool(self._triggers)

    def start(self, shards: Iterable[int], now_ms: int) -> None:
        """Shards have got segments: their timers run from now on, unless they do."""
        for shard in shards:
            for trigger in self._triggers:
                if (trigger.name, shard) not in self._dues.at:
                    self.arm(trigger, shard, now_ms)

    def due(self, now_ms: int) -> list[tuple[CompiledTrigger, list[int]]]:
        """Triggers that were due before `now_ms`, with the shards; they are so until armed."""
        at = self._dues.at
        due = sorted((each for each in at if at[each] < now_ms), key=at.__getitem__)
        found = [(each, [n for name, n in due if name == each.name]) for each in self._triggers]
        return [(trigger, shards) for trigger, shards in found if shards]

    def restart(self, shards: Collection[int], now_ms: int) -> None:
        """Triggers have fired for another reason: they are due a period later."""
        for trigger in self._triggers:
            for shard in shards:
                if (trigger.name, shard) in self._dues.at:
                    self.arm(trigger, shard, now_ms)

    def next_tick_ms(self) -> int | None:
        """When something is due."""
        due = self._dues.earliest()
        return None if due is None else int(due) + 1

    def arm(self, trigger: CompiledTrigger, shard: int, now_ms: int) -> None:
        """A trigger has fired for a shard, or begins: it is due a period later."""
        assert trigger.period_ms is not None
        self._dues.put((trigger.name, shard), now_ms + trigger.period_ms)
        self._changed[trigger.name, shard] = None

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        for name, shard in self._changed:
            tell(records, shard, ["timer", self._window, name, self._dues.at[name, shard]])
        self._changed.clear()

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add the timers of some shards."""
        for (name, shard), due_ms in self._dues.at.items():
            if shard in shards:
                tell(records, shard, ["timer", self._window, name, due_ms])

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record; of a trigger that is gone it is left out."""
        if record[2] in [trigger.name for trigger in self._triggers]:
            self._dues.put((record[2], shard), record[3])

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards."""
        for each in [each for each in self._dues.at if each[1] in shards]:
            self._dues.remove(each)
            self._changed.pop(each, None)
