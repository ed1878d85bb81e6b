"""What one trigger keeps by group: a count of segments, or what a user's own trigger returns."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from onyx.keystate.copies import copied
from onyx.keystate.groups import Shards, dump_key, load_key
from onyx.keystate.records import DeleteTriggerStates, Records, SetTriggerStates, append

_ABSENT: Any = object()


class GroupStates:
    """States of a trigger of a window on one peer, and which have changed since the last chunk."""

    def __init__(self, window: str, trigger: str, shards: Shards) -> None:
        self._window = window
        self._trigger = trigger
        self._shards = shards
        self._states: dict[Any, Any] = {}
        self._changed: dict[Any, None] = {}

    def get(self, key: Any, default: Any) -> Any:
        """The state of a group, or `default` if it has none."""
        return self._states.get(key, default)

    def set(self, key: Any, state: Any) -> None:
        """Give a group a state, in place of the one before."""
        self._states[key] = state
        self._changed[key] = None

    def delete(self, key: Any) -> None:
        """Forget the state of a group, if it has one."""
        if self._states.pop(key, _ABSENT) is not _ABSENT:
            self._changed[key] = None

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        self._append(records, self._changed)
        self._changed = {}

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add the states of some shards."""
        self._append(records, [key for key in self._states if self._shards[key] in shards])

    def restore(self, record: SetTriggerStates | DeleteTriggerStates) -> None:
        """Apply a record."""
        keys = map(load_key, record.groups)
        if isinstance(record, SetTriggerStates):
            self._states.update(zip(keys, map(copied, record.states), strict=True))
        else:
            for key in keys:
                self._states.pop(key, None)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now, with what has changed in them."""
        for held in (self._states, self._changed):
            for key in [key for key in held if self._shards[key] in shards]:
                del held[key]

    def _append(self, records: Records, keys: Iterable[Any]) -> None:
        states = self._states
        present: dict[int, list[Any]] = {}
        absent: dict[int, list[Any]] = {}
        for key in keys:
            (present if key in states else absent).setdefault(self._shards[key], []).append(key)
        for shard, mine in present.items():
            groups, copies = [*map(dump_key, mine)], [copied(states[key]) for key in mine]
            append(records, shard, SetTriggerStates(self._window, self._trigger, groups, copies))
        for shard, mine in absent.items():
            groups = [*map(dump_key, mine)]
            append(records, shard, DeleteTriggerStates(self._window, self._trigger, groups))
