"""The states of numbered extents: a bucket for each extent, in arrays where that is possible.

Arrays are for tasks over columns whose triggers look at no single segment, and for aggregations
that have an array form; states that may be on the local disk are not in arrays. An extent whose
states arrays cannot hold goes on in a bucket of Python's, and the others stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np

from onyx.flow.batch import Indices
from onyx.keystate.buckets import Bucket, Frozen
from onyx.keystate.coded import Groups, Keyed, Values
from onyx.keystate.groups import load_key, load_keys
from onyx.keystate.records import AddUpdates, Record, SetArrays, SetStates, StatesRecord
from onyx.windows.aggregations.array_forms import States
from onyx.windows.arrays.bucket import ArrayBucket
from onyx.windows.arrays.key_table import unpacked
from onyx.windows.types.changes import Changes
from onyx.windows.types.extents import OnPeer


class ExtentStates(dict[int, Bucket]):
    """The buckets of one window, by the number of the extent."""

    def __init__(self, on_peer: OnPeer, changes: Changes) -> None:
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
