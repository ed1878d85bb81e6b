"""What has changed in a window of numbered extents since changes were last taken.

Of a closed aggregation the groups are noted, and their states told once, however often they have
changed. Of an open one the updates are kept, until something else changes the state as well (a
refinement): then the state itself is told. An extent that goes as a whole is told in one record.
What is told of an extent: that it is cleared, then states and removals, then updates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.buckets import Bucket
from onyx.windows.groups import Shards, dump_key, dump_keys
from onyx.windows.records import Records, tell
from onyx.windows.types.passing import Keys


class BucketChanges:
    """Changes of one window."""

    def __init__(self, window: str, aggregation: Aggregation) -> None:
        self._window = window
        self._aggregation = aggregation
        self._cleared: dict[int, Keys] = {}
        """Shards, by extent."""
        self._states: dict[int, dict[Any, Any]] = {}
        """Groups whose state is told, or that they are gone; with the state, if it is not looked up
        then."""
        self._updates: dict[int, dict[Any, list[Any]]] = {}

    def states(self, extent: int, keys: Mapping[Any, Any]) -> None:
        """States have been changed, or groups removed.

        Args:
            keys: groups; each with its state now, or None, which says nothing.
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

    def fold(
        self, extent: int, bucket: Bucket, keys: Sequence[Any], extracted: Sequence[Any]
    ) -> None:
        """Apply segments to an extent of an open aggregation, and keep the updates."""
        create, apply = self._aggregation.create, self._aggregation.apply
        told = self._states.get(extent, {})
        kept = self._updates.setdefault(extent, {})
        for key, each in zip(keys, extracted, strict=True):
            state = bucket[key]
            update = create(state, each)
            bucket[key] = apply(state, update)
            if key not in told:
                kept.setdefault(key, []).append(update)

    def noted(self, extent: int) -> Collection[Any]:
        """Groups that an extent has, or had when changes were taken."""
        return self._states.get(extent, {}).keys()

    def cleared(self, extent: int, shards: Keys) -> None:
        """An extent has gone, which had groups of these shards."""
        self._cleared.setdefault(extent, {}).update(shards)
        self._states.pop(extent, None)
        self._updates.pop(extent, None)

    def take(self, records: Records, buckets: Mapping[int, Bucket], shards: Shards) -> None:
        """Add all as records, and begin anew."""
        for extent, cleared in self._cleared.items():
            for shard in cleared:
                tell(records, shard, ["clear", self._window, extent])
        for extent, keys in self._states.items():
            bucket = buckets.get(extent)
            self.tell(records, extent, keys, {} if bucket is None else bucket, shards, None)
        for extent, updates in self._updates.items():
            for key, each in updates.items():
                tell(records, shards[key], ["add", self._window, extent, dump_key(key), each])
        self._cleared, self._states, self._updates = {}, {}, {}

    def tell(
        self,
        records: Records,
        extent: int,
        keys: Mapping[Any, Any],
        bucket: Mapping[Any, Any],
        shards: Shards,
        only: Collection[int] | None,
    ) -> None:
        """Add the states of groups, of some shards or all; those that have none are gone. `keys` as
        of `states`."""
        for shard, mine, known in _by_shard(keys, shards):
            if only is None or shard in only:
                states = [
                    bucket.get(key, _GONE) if state is None else state
                    for key, state in zip(mine, known, strict=True)
                ]
                gone = [key for key, state in zip(mine, states, strict=True) if state is _GONE]
                if gone:
                    tell(records, shard, ["delete", self._window, extent, dump_keys(gone)])
                    mine = [key for key in mine if key in bucket]
                    states = [state for state in states if state is not _GONE]
                if mine:
                    states = self._aggregation.dump_all(states)
                    tell(records, shard, ["set", self._window, extent, dump_keys(mine), states])

    def drop(self, extent: int, keys: Iterable[Any], shards: Collection[int]) -> None:
        """Groups belong to others now: nothing is told of them."""
        states, updates = self._states.get(extent, {}), self._updates.get(extent, {})
        for key in keys:
            states.pop(key, None)
            updates.pop(key, None)
        for shard in shards:
            self._cleared.get(extent, {}).pop(shard, None)


_GONE: Any = object()


def _by_shard(
    keys: Mapping[Any, Any], shards: Shards
) -> Iterator[tuple[int, list[Any], list[Any]]]:
    """Groups that are in the same shard, in order, and what is known of them."""
    numbers = np.fromiter(map(shards.__getitem__, keys), np.uint16, len(keys))
    order = np.argsort(numbers, kind="stable")  # two bytes are sorted without comparing
    numbers, places = numbers[order], order.tolist()
    listed = list(map(list(keys).__getitem__, places))
    known = list(map(list(keys.values()).__getitem__, places))
    firsts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] + 1))
    for first, end in pairwise([*firsts.tolist(), len(places)]):
        yield int(numbers[first]), listed[first:end], known[first:end]
