"""What has changed in numbered extents since changes were last taken, and its records.

Of a closed aggregation the groups are remembered, and their states recorded once, however often
they have changed. Of an open one the updates are kept, until something else changes the state as
well (a refinement): then the state itself is recorded. The records of an extent are in this order:
that it is cleared, states and removals, updates. What has changed of an extent in arrays its bucket
knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat
from operator import is_
from typing import Any

from onyx.keystate.buckets import Bucket
from onyx.keystate.groups import Keys, Shards, dump_key, dump_keys
from onyx.keystate.records import (
    AddUpdates,
    ClearExtent,
    DeleteGroups,
    Records,
    SetStates,
    append,
)
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.arrays.bucket import ArrayBucket

_GONE: Any = object()


class Changes:
    """Changes of one window."""

    def __init__(self, window: str, aggregation: Aggregation, shards: Shards) -> None:
        self._window = window
        self._aggregation = aggregation
        self._shards = shards
        self._cleared: dict[int, Keys] = {}
        """Shards, by extent."""
        self._states: dict[int, dict[Any, Any]] = {}
        """Groups whose state, or absence, is recorded; with the state, if it is known already."""
        self._updates: dict[int, dict[Any, list[Any]]] = {}
        self._in_arrays: dict[int, None] = {}
        """Extents whose buckets know themselves what has changed."""

    def states(self, extent: int, keys: Mapping[Any, Any]) -> None:
        """States have been changed, or groups removed.

        Args:
            keys: groups; each with its state now, or None: look it up when changes are taken.
        """
        noted = self._states.get(extent)
        if noted is None:
            self._states[extent] = dict(keys)
        else:
            noted.update(keys)
        updates = self._updates.get(extent)
        if updates:
            for key in keys:
                updates.pop(key, None)

    def in_arrays(self, extent: int) -> None:
        """States have been changed of an extent that is in arrays."""
        self._in_arrays[extent] = None

    def fold(
        self, extent: int, bucket: Bucket, keys: Sequence[Any], extracted: Sequence[Any]
    ) -> None:
        """Apply segments to an extent of an open aggregation, and keep the updates."""
        step = self._aggregation.step
        whole = self._states.get(extent, {})
        kept = self._updates.setdefault(extent, {})
        for key, each in zip(keys, extracted, strict=True):
            bucket[key], update = step(bucket[key], each)
            if key not in whole:
                kept.setdefault(key, []).append(update)

    def noted(self, extent: int) -> Collection[Any]:
        """Groups that an extent has, or had when changes were taken."""
        return self._states.get(extent, {}).keys()

    def cleared(self, extent: int, shards: Keys) -> None:
        """An extent has gone, which had groups of these shards."""
        self._cleared.setdefault(extent, {}).update(shards)
        self._states.pop(extent, None)
        self._updates.pop(extent, None)

    def take(self, records: Records, buckets: Mapping[int, Bucket]) -> None:
        """Add all as records, and begin anew."""
        for extent, cleared in self._cleared.items():
            for shard in cleared:
                append(records, shard, ClearExtent(self._window, extent))
        for extent, keys in self._states.items():
            self._append_states(records, extent, keys, buckets.get(extent, {}))
        for extent in self._in_arrays:
            bucket = buckets.get(extent)
            if isinstance(bucket, ArrayBucket):
                bucket.append_changes(records, self._window, extent)
        window, shards = self._window, self._shards
        for extent, updates in self._updates.items():
            for key, each in updates.items():
                append(records, shards[key], AddUpdates(window, extent, dump_key(key), each))
        self._cleared, self._states, self._updates, self._in_arrays = {}, {}, {}, {}

    def drop(self, extent: int, keys: Iterable[Any], shards: Collection[int]) -> None:
        """Groups belong to another peer now: it records what changes."""
        states, updates = self._states.get(extent, {}), self._updates.get(extent, {})
        for key in keys:
            states.pop(key, None)
            updates.pop(key, None)
        for shard in shards:
            self._cleared.get(extent, {}).pop(shard, None)

    def _append_states(
        self,
        records: Records,
        extent: int,
        keys: Mapping[Any, Any],
        bucket: Mapping[Any, Any],
    ) -> None:
        """Add the states of groups; those that have none are gone."""
        groups, states = list(keys), list(keys.values())
        if any(map(is_, states, repeat(None))):
            states = [
                bucket.get(key, _GONE) if state is None else state
                for key, state in zip(groups, states, strict=True)
            ]
        order, runs = self._shards.runs(groups)
        groups = list(map(groups.__getitem__, order))
        states = list(map(states.__getitem__, order))
        if any(map(is_, states, repeat(_GONE))):
            for shard, first, end in runs:
                self._append_some(records, shard, extent, groups[first:end], states[first:end])
            return
        groups, states = dump_keys(groups), self._aggregation.dump_all(states)
        window = self._window
        for shard, first, end in runs:
            append(records, shard, SetStates(window, extent, groups[first:end], states[first:end]))

    def _append_some(
        self, records: Records, shard: int, extent: int, groups: list[Any], states: list[Any]
    ) -> None:
        """Appends for groups of a shard of which some may be gone."""
        gone = [key for key, state in zip(groups, states, strict=True) if state is _GONE]
        if gone:
            append(records, shard, DeleteGroups(self._window, extent, dump_keys(gone)))
            pairs = zip(groups, states, strict=True)
            groups = [key for key, state in pairs if state is not _GONE]
            states = [state for state in states if state is not _GONE]
        if groups:
            states = self._aggregation.dump_all(states)
            append(records, shard, SetStates(self._window, extent, dump_keys(groups), states))
