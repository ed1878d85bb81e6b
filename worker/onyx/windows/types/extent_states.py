"""The states of numbered extents, a bucket for each extent, and what has changed in them.

States are in arrays for tasks over columns whose triggers look at no single segment, and for
aggregations that have an array form; states that may be on the local disk are not in arrays. An
extent whose states arrays cannot hold goes on in a bucket of Python's, and the others stay as they
are.

Of a closed aggregation the groups that have changed are remembered, and their states recorded once,
however often they have changed. Of an open one the updates are kept, until something else changes
the state as well (a refinement): then the state itself is recorded. The records of an extent are in
this order: that it is cleared, states and removals, updates. What has changed of an extent in
arrays its bucket knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import is_
from typing import Any

import numpy as np

from onyx.flow.batch import Indices
from onyx.keystate.buckets import Bucket, Frozen
from onyx.keystate.coded import Groups, Keyed, Values
from onyx.keystate.groups import Keys, Shards, dump_key, dump_keys, load_key, load_keys
from onyx.keystate.records import (
    AddUpdates,
    ClearExtent,
    DeleteGroups,
    Record,
    Records,
    SetArrays,
    SetStates,
    StatesRecord,
    append,
)
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.array_forms import States
from onyx.windows.arrays.bucket import ArrayBucket
from onyx.windows.arrays.key_table import unpacked
from onyx.windows.types.extents import OnPeer

_GONE: Any = object()


class ExtentStates(dict[int, Bucket]):
    """The buckets of one window, by the number of the extent."""

    def __init__(self, on_peer: OnPeer, changes: ExtentChanges) -> None:
        super().__init__()
        self._window = on_peer.compiled.window.id
        self._aggregation = on_peer.compiled.aggregation
        self._form = self._aggregation.form()
        self._array_form = self._aggregation.array_form()
        self._holder = on_peer.holder
        self._shards = on_peer.shards
        self._changes = changes
        whole = on_peer.compiled.columns and on_peer.whole and self._holder.in_memory
        self.in_arrays = whole and self._array_form is not None
        """Whether extents begin in arrays."""

    def begin(self, number: int) -> Bucket:
        """An extent that has no groups yet."""
        if self.in_arrays:
            assert self._array_form is not None
            self[number] = ArrayBucket(self._form, self._array_form, self._shards)
        else:
            self[number] = self._holder.bucket(self._form, self._shards)
        return self[number]

    def fold(self, number: int, keys: Keyed, extracted: Values) -> Iterable[Any] | None:
        """Apply segments to an extent that is in arrays.

        Returns:
            The groups of the segments; None: the extent is not, or cannot stay, in arrays.
        """
        bucket = self[number]
        if not isinstance(bucket, ArrayBucket):
            return None
        groups = keys if isinstance(keys, Groups) else Groups.of_rows(keys)
        rows = bucket.fold(groups, extracted)
        if rows is None:
            self._make_plain(number, bucket)
            return None
        self._changes.in_arrays(number)
        return bucket.touched(rows)

    def put(self, number: int, key: Any, state: Any) -> None:
        """Give a group that an extent has another state."""
        bucket = self[number]
        if isinstance(bucket, ArrayBucket):
            if bucket.put_all([key], [state]):
                self._changes.in_arrays(number)
                return
            bucket = self._make_plain(number, bucket)
        bucket[key] = state
        self._changes.states(number, {key: None})

    def reset(self, number: int, keys: Collection[Any]) -> None:
        """Give groups that an extent has the first state."""
        bucket, init = self[number], self._aggregation.init
        if isinstance(bucket, ArrayBucket):
            if bucket.put_all(list(keys), [init()] * len(keys)):
                self._changes.in_arrays(number)
                return
            bucket = self._make_plain(number, bucket)
        for key in keys:
            bucket[key] = init()
        self._changes.states(number, dict.fromkeys(keys))

    def remove(self, number: int, keys: Collection[Any]) -> None:
        """An extent loses groups that it has."""
        bucket = self[number]
        bucket.remove(keys)
        if not isinstance(bucket, ArrayBucket):
            self._changes.states(number, dict.fromkeys(keys))
        elif bucket:
            self._changes.in_arrays(number)
        else:  # and goes itself: what is to be recorded of it is noted elsewhere
            self._changes.states(number, dict.fromkeys(bucket.unrecorded()))

    def shards_had(self, number: int) -> dict[int, None]:
        """The shards of groups that an extent has, or had when changes were taken."""
        bucket, shards = self[number], self._shards
        if not self._holder.in_memory:
            return dict(shards.known)
        gone = [key for key in self._changes.noted(number) if key not in bucket]
        had = dict.fromkeys(map(shards.__getitem__, gone))
        if isinstance(bucket, ArrayBucket):
            return had | bucket.shards_had()
        return had | dict.fromkeys(map(shards.__getitem__, bucket))

    # Records.

    def records(self, frozen: Frozen) -> Callable[[int], Iterator[Record]]:
        """What gives the states of a shard, as they are frozen."""
        window, buckets = self._window, list(self.items())

        def of_shard(shard: int) -> Iterator[Record]:
            for number, bucket in buckets:
                if isinstance(bucket, ArrayBucket):
                    yield from bucket.records(window, number, shard)
                    continue
                for keys, states in frozen.pages(bucket, shard):
                    yield SetStates(window, number, keys, states)

        return of_shard

    def update_group(self, record: AddUpdates) -> Any:
        """Apply updates as recorded, which is no change; gives the group."""
        bucket, key = self[record.extent], load_key(record.group)
        state = bucket[key]
        for update in record.updates:
            state = self._aggregation.apply(state, update)
        bucket[key] = state
        return key

    def restore(self, shard: int, record: StatesRecord) -> Iterable[Any]:
        """Set states of a shard as recorded, which is no change; gives the groups."""
        return self._take_in(
            record,
            lambda bucket, groups, states: bucket.restore(groups, states, shard),
            lambda bucket, keys, states: bucket.update(zip(keys, states, strict=True)),
        )

    def merge(self, record: StatesRecord) -> Iterable[Any]:
        """Add states that were folded elsewhere; gives the groups."""
        merge = self._aggregation.merge

        def merge_python(bucket: Bucket, keys: list[Any], states: list[Any]) -> None:
            for key, state in zip(keys, states, strict=True):
                bucket[key] = merge(bucket[key], state) if key in bucket else state
            bucket.used(keys)
            self._changes.states(record.extent, dict.fromkeys(keys))

        touched = self._take_in(record, ArrayBucket.merge, merge_python)
        if isinstance(self[record.extent], ArrayBucket):
            self._changes.in_arrays(record.extent)
        return touched

    def _take_in(
        self,
        record: StatesRecord,
        in_arrays: Callable[[ArrayBucket, Groups, States], Indices | None],
        in_python: Callable[[Bucket, list[Any], list[Any]], None],
    ) -> Iterable[Any]:
        """Take the states of a record into its extent, in the way that goes with its bucket."""
        form, bucket = self._array_form, self[record.extent]
        columns: States | None = None
        states: list[Any] | None = None
        if isinstance(record, SetArrays):
            groups, columns = _arrays_of(record)
        else:
            loaded = map(self._aggregation.load, record.states)
            found = dict(zip(load_keys(record.groups), loaded, strict=True))
            groups, states = Groups.each(list(found)), list(found.values())
        if isinstance(bucket, ArrayBucket):
            if columns is None and form is not None and states is not None:
                columns = form.from_python(states)
            rows = None if columns is None else in_arrays(bucket, groups, columns)
            if rows is not None:
                return bucket.touched(rows)
            bucket = self._make_plain(record.extent, bucket)
        if states is None:
            assert form is not None, "the record was made by one"
            assert columns is not None
            states = form.to_python(columns)
        in_python(bucket, groups.keys, states)
        return groups.keys

    def forget_groups(self, number: int, shard: int, keys: Iterable[Any] | None) -> None:
        """An extent of a shard has lost groups, as recorded, or all (None)."""
        bucket = self[number]
        if isinstance(bucket, ArrayBucket):
            bucket.forget([shard] if keys is None else [], keys or ())
            return
        for key in list(bucket.groups([shard])) if keys is None else keys:
            if key in bucket:
                del bucket[key]

    def drop(self, shards: Collection[int]) -> None:
        """Forget the groups of shards, with what has changed of them."""
        for number, bucket in self.items():
            gone: list[Any] = []
            if isinstance(bucket, ArrayBucket):
                bucket.forget(shards)
            else:
                gone = [key for key in bucket if self._shards[key] in shards]
                for key in gone:
                    del bucket[key]
            self._changes.drop(number, gone, shards)

    def _make_plain(self, number: int, bucket: ArrayBucket) -> Bucket:
        """An extent goes on in a bucket of Python's."""
        self._changes.states(number, dict.fromkeys(bucket.unrecorded()))
        made = self[number] = bucket.plain()
        return made


def _arrays_of(record: SetArrays) -> tuple[Groups, States]:
    """The groups of a record and their states, in arrays."""
    columns = zip(record.types, record.states, strict=True)
    states = tuple(np.frombuffer(data, kind) for kind, data in columns)
    return unpacked(record.keys, record.groups), states


class ExtentChanges:
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
