"""States of triggers by group: counts of segments, and whatever the user's own triggers keep."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from copy import deepcopy
from typing import Any

from onyx.windows.groups import Shards, dump_key, load_key
from onyx.windows.records import Record, Records, tell

NOTHING: Any = object()
"""Of a group that has no state."""


class TriggerStates:
    """The states of all triggers of a window, and what has changed of them."""

    def __init__(self, window: str, names: Iterable[str], shards: Shards) -> None:
        self._window = window
        self._shards = shards
        self._states: dict[str, dict[Any, Any]] = {name: {} for name in names}
        self._changed: dict[str, dict[Any, None]] = {name: {} for name in self._states}

    def get(self, name: str, key: Any) -> Any:
        """The state of a trigger for a group, or NOTHING."""
        return self._states[name].get(key, NOTHING)

    def set(self, name: str, key: Any, state: Any) -> None:
        """NOTHING forgets the group."""
        if state is NOTHING:
            self._states[name].pop(key, None)
        else:
            self._states[name][key] = state
        self._changed[name][key] = None

    def take(self, records: Records) -> None:
        """Add what has changed since the last time."""
        for name, keys in self._changed.items():
            self._tell(records, name, keys)
            keys.clear()

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add the states of some shards."""
        for name, states in self._states.items():
            self._tell(records, name, [key for key in states if self._shards[key] in shards])

    def restore(self, record: Record) -> None:
        """Apply a record; of a trigger that is gone it is left out."""
        held = self._states.get(record[2], {})
        if record[0] == "states":
            for data, state in zip(record[3], record[4], strict=True):
                held[load_key(data)] = deepcopy(state)
        else:
            for data in record[3]:
                held.pop(load_key(data), None)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards, with what has changed in them."""
        for name, states in self._states.items():
            for key in [key for key in states if self._shards[key] in shards]:
                del states[key]
            changed = self._changed[name]
            for key in [key for key in changed if self._shards[key] in shards]:
                del changed[key]

    def _tell(self, records: Records, name: str, keys: Iterable[Any]) -> None:
        states = self._states[name]
        there: dict[int, list[Any]] = {}
        gone: dict[int, list[Any]] = {}
        for key in keys:
            (there if key in states else gone).setdefault(self._shards[key], []).append(key)
        for shard, each in there.items():
            dumped = [deepcopy(states[key]) for key in each]
            tell(records, shard, ["states", self._window, name, [*map(dump_key, each)], dumped])
        for shard, each in gone.items():
            tell(records, shard, ["no-states", self._window, name, [*map(dump_key, each)]])
