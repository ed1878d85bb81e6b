"""One state of a task by key: values, lists or maps, with what has changed since the last chunk.

A value is recorded as a whole. Of a list what was appended is recorded, and of a map the items that
were set or removed, unless more has happened to them. An empty list or map is not there.

Whoever gets a list or a map looks at it only: changes go through the methods here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from onyx.keystate.buckets import Bucket, BucketForm, Frozen, Holder, Pair, pages
from onyx.keystate.entries import Entries, in_order
from onyx.keystate.groups import (
    Keys,
    Shards,
    dump_key,
    dump_keys,
    hashable_key,
    load_key,
    load_keys,
)
from onyx.keystate.records import (
    AddUpdates,
    DeleteGroups,
    PutEntries,
    Record,
    Records,
    SetStates,
    append,
)
from onyx.keystate.selection import Selection

_EXTENT = 0
"""The number in records, which windows have for extents."""
ABSENT: Final[Any] = object()
"""In place of a state: the key has none."""
ENTRIES_MAX = 1_024
"""Entries of a map in one record."""
PART_MAX = 10_000
"""Entries of a map in one page of an answer."""


def _alike(value: Any) -> Any:
    return value


class States:
    """The state of one name, by key (`keystate.groups.hashable_key`)."""

    def __init__(self, name: str, bucket: Bucket, shards: Shards) -> None:
        self.name = name
        self._shards = shards
        self._bucket = bucket
        self._whole: Keys = {}
        """Keys whose state, or absence, is recorded as a whole."""
        self._parts: dict[Any, Any] = {}
        """What is recorded of other keys, as the kind of state marks it."""

    def __len__(self) -> int:
        return len(self._bucket)

    def __contains__(self, key: Any) -> bool:
        return key in self._bucket

    def keys(self) -> Iterable[Any]:
        """All keys that have the state; meanwhile states may be changed and removed."""
        return self._bucket.groups()

    def items(self) -> Iterable[tuple[Any, Any]]:
        """All keys with their states; meanwhile nothing may change."""
        return self._bucket.items()

    def peek(self, key: Any) -> Any:
        """The state of a key as it is kept, or ABSENT."""
        return self._bucket.get(key, ABSENT)

    def shown(self, key: Any, asked: Selection) -> tuple[Any, Any]:
        """The state of a key for a question; and of a map that comes in parts the last key of this
        one, if there are more."""
        return self.peek(key), None

    def get_all(self, keys: Sequence[Any], default: Any = None) -> list[Any]:
        """The states of several keys as they are kept."""
        return self._bucket.get_all(keys, default)

    def remove(self, key: Any) -> None:
        """A key loses the state, if it has it."""
        if key in self._bucket:
            del self._bucket[key]
            self._changed(key)

    def free(self) -> None:
        """Between two calls: what was removed is not given back any more."""

    def _changed(self, key: Any) -> None:
        self._whole[key] = None
        self._parts.pop(key, None)

    # What is recorded and restored.

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        keys = list(self._whole)
        for shard, indices in self._shards.split(keys):
            self._append(records, shard, [keys[index] for index in indices])
        for key, mark in self._parts.items():
            updates = self._updates(self._bucket.get(key), mark)
            if updates:
                record = AddUpdates(self.name, _EXTENT, dump_key(key), updates)
                append(records, self._shards[key], record)
        self._whole, self._parts = {}, {}

    def _append(self, records: Records, shard: int, keys: list[Any]) -> None:
        states = [self._bucket.get(key, ABSENT) for key in keys]
        gone = [key for key, state in zip(keys, states, strict=True) if state is ABSENT]
        if gone:
            append(records, shard, DeleteGroups(self.name, _EXTENT, dump_keys(gone)))
            keys = [key for key, state in zip(keys, states, strict=True) if state is not ABSENT]
        if keys:
            for record in self._states_of(keys):
                append(records, shard, record)

    def _states_of(self, keys: list[Any]) -> Iterable[Record]:
        """Records of the whole states of some keys."""
        return [SetStates(self.name, _EXTENT, *self._bucket.dumped(keys))]

    def records(self, frozen: Frozen) -> Callable[[int], Iterator[Record]]:
        """What gives the states of a shard, as they are frozen."""

        def of_shard(shard: int) -> Iterator[Record]:
            for groups, states in frozen.pages(self._bucket, shard):
                yield SetStates(self.name, _EXTENT, groups, states)

        return of_shard

    def restore(self, record: Record) -> None:
        """Apply a record, which is no change."""
        match record:
            case SetStates(groups=groups, states=states):
                loaded = map(self._loaded, states)
                self._bucket.update(zip(load_keys(groups), loaded, strict=True))
            case DeleteGroups(groups=groups):
                for key in load_keys(groups):
                    if key in self._bucket:
                        del self._bucket[key]
            case AddUpdates(group=group, updates=updates):
                self._update(load_key(group), updates)

    def _loaded(self, data: Any) -> Any:
        """A state from what was recorded of it."""
        return data

    def _updates(self, state: Any, mark: Any) -> list[Any]:
        """What is recorded of a state of which only a part has changed."""
        raise NotImplementedError("recorded as a whole")

    def _update(self, key: Any, updates: Sequence[Any]) -> None:
        """Apply what `_updates` gave."""
        raise NotImplementedError("recorded as a whole")


class Values(States):
    """A plain value a key. Nobody changes a value that is here: another one replaces it."""

    def __init__(self, name: str, shards: Shards, holder: Holder) -> None:
        form = BucketForm(lambda: None, _alike, lambda key, data: data, is_plain=True)
        super().__init__(name, holder.bucket(form, shards), shards)
        self.get: Callable[..., Any] = self._bucket.get
        """Gives the value of a key, or None, or another default."""

    def put(self, key: Any, value: Any) -> None:
        """Give a key another value."""
        self._bucket[key] = value
        self._whole[key] = None

    def swap(self, key: Any, value: Any) -> Any:
        """Give a key another value, or none if that is ABSENT; the one that it had."""
        before = self._bucket.get(key, ABSENT)
        if value is not ABSENT:
            self._bucket[key] = value
        elif before is not ABSENT:
            del self._bucket[key]
        self._whole[key] = None
        return before

    def put_all(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Give different keys other values."""
        self._bucket.update(dict(zip(keys, values, strict=True)))
        self._whole.update(dict.fromkeys(keys))


class Lists(States):
    """A list of plain values a key."""

    def __init__(self, name: str, shards: Shards, holder: Holder) -> None:
        form = BucketForm(list, list, lambda key, data: list(data))
        super().__init__(name, holder.bucket(form, shards), shards)

    def get(self, key: Any) -> Sequence[Any]:
        """The list of a key; an empty one if it has none."""
        found: Sequence[Any] = self._bucket.get(key, ())
        return found

    def extend(self, key: Any, items: Sequence[Any]) -> None:
        """Append to the list of a key."""
        if not items:
            return
        state = self._bucket[key]
        if key not in self._whole:
            self._parts.setdefault(key, len(state))
        state += items

    def put(self, key: Any, items: Sequence[Any]) -> None:
        """Give a key another list."""
        if not items:
            self.remove(key)
            return
        self._bucket[key] = list(items)
        self._changed(key)

    def cut(self, key: Any, length: int) -> None:
        """Leave so many items in the list of a key, the first ones."""
        if not length:
            self.remove(key)
            return
        del self._bucket[key][length:]
        known = self._parts.get(key)
        if key not in self._whole and (known is None or known > length):
            self._changed(key)

    def _loaded(self, data: Any) -> list[Any]:
        return list(data)

    def _updates(self, state: Any, mark: Any) -> list[Any]:
        found: list[Any] = state[mark:]
        return found

    def _update(self, key: Any, updates: Sequence[Any]) -> None:
        self._bucket[key].extend(updates)


class RemovedMap(NamedTuple):
    """A map that was removed, and what of it was to be recorded."""

    state: Any
    whole: bool
    part: Any


class Maps(States):
    """A map of plain values a key, by entry (`keystate.entries`): it may have a million."""

    def __init__(self, name: str, shards: Shards, holder: Holder) -> None:
        super().__init__(name, holder.maps(shards), shards)
        self._removed: dict[int, Entries] = {}
        """Maps that may be taken back as long as a call is not through, by their identities."""

    def get(self, key: Any) -> Mapping[Any, Any]:
        """The map of a key; an empty one if it has none."""
        found: Mapping[Any, Any] = self._bucket.get(key, _NOTHING)
        return found

    def shown(self, key: Any, asked: Selection) -> tuple[Any, Any]:
        """The map of a key; of a large one the entries behind those of the page before."""
        state, inside, after = self.get(key), asked.inside, asked.after
        if inside.path or inside.items_max is not None:
            return state, None
        behind = None if after is None or hashable_key(after.group) != key else after.item
        if behind is None and len(state) <= PART_MAX:
            return state, None
        found = list(in_order(state, inside.first, inside.end, PART_MAX + 1, behind))
        more = len(found) > PART_MAX
        return dict(found[:PART_MAX]), found[PART_MAX - 1][0] if more else None

    def set(self, key: Any, item: Any, value: Any) -> None:
        """Set an item in the map of a key."""
        self._bucket[key][item] = value
        self._mark(key, item)

    def discard(self, key: Any, item: Any) -> None:
        """Remove an item from the map of a key, if it is there."""
        state = self._bucket.get(key, _NOTHING)
        if item not in state:
            return
        if len(state) == 1:
            self.remove(key)
            return
        del state[item]
        self._mark(key, item)

    def remove(self, key: Any) -> None:
        """A key loses its map, if it has one."""
        if self._drop(key):
            self._changed(key)

    def take(self, key: Any) -> RemovedMap:
        """Remove the map of a key in such a way that it can be given back: at once, however large
        it is."""
        taken = RemovedMap(self._bucket.get(key), key in self._whole, self._parts.get(key))
        self.remove(key)
        return taken

    def give_back(self, key: Any, taken: RemovedMap) -> None:
        """Instead of what a key has: as before `take`, also in what is recorded."""
        self._drop(key)
        if taken.state is not None:
            self._removed.pop(id(taken.state), None)
            self._bucket[key] = taken.state
        if not taken.whole:
            self._whole.pop(key, None)
            self._parts.pop(key, None)
            if taken.part is not None:
                self._parts[key] = taken.part

    def free(self) -> None:
        """Between two calls: what was removed is not given back any more."""
        for state in self._removed.values():
            state.free()
        self._removed.clear()

    def _drop(self, key: Any) -> bool:
        state = self._bucket.get(key)
        if state is None:
            return False
        del self._bucket[key]
        if isinstance(state, Entries):
            self._removed[id(state)] = state
        return True

    def _mark(self, key: Any, item: Any) -> None:
        if key not in self._whole:
            self._parts.setdefault(key, {})[item] = None

    # What is recorded and restored.

    def _states_of(self, keys: list[Any]) -> Iterator[Record]:
        states = map(self._bucket.__getitem__, keys)
        return self._by_entry(zip(dump_keys(keys), map(in_order, states), strict=True))

    def records(self, frozen: Frozen) -> Callable[[int], Iterator[Record]]:
        """What gives the maps of a shard, as they are frozen."""
        return lambda shard: self._by_entry(frozen.maps(self._bucket, shard))

    def _by_entry(self, maps: Iterable[tuple[Any, Iterable[Pair]]]) -> Iterator[Record]:
        """Whole maps, in records of at most `ENTRIES_MAX` entries."""
        groups: list[Any] = []
        states: list[list[Any]] = []
        many = 0
        for group, entries in maps:
            parts = pages(entries, ENTRIES_MAX)
            first = next(parts, [])
            if groups and many + len(first) > ENTRIES_MAX:
                yield SetStates(self.name, _EXTENT, groups, states)
                groups, states, many = [], [], 0
            groups.append(group)
            states.append(list(chain.from_iterable(first)))
            many += len(first)
            for number, part in enumerate(parts):
                if not number:
                    yield SetStates(self.name, _EXTENT, groups, states)
                    groups, states, many = [], [], 0
                yield PutEntries(self.name, _EXTENT, group, list(chain.from_iterable(part)))
        if groups:
            yield SetStates(self.name, _EXTENT, groups, states)

    def restore(self, record: Record) -> None:
        """Apply a record, which is no change."""
        match record:
            case SetStates(groups=groups, states=states):
                for key, flat in zip(load_keys(groups), map(iter, states), strict=True):
                    self._drop(key)
                    self._bucket[key].update(zip(flat, flat, strict=True))
            case PutEntries(group=group, entries=entries):
                flat = iter(entries)
                self._bucket[load_key(group)].update(zip(flat, flat, strict=True))
            case DeleteGroups(groups=groups):
                for key in load_keys(groups):
                    self._drop(key)
            case _:
                super().restore(record)
        self.free()

    def _updates(self, state: Any, mark: Any) -> list[Any]:
        found = ((item, state.get(item, ABSENT)) for item in mark)
        return [[item] if value is ABSENT else [item, value] for item, value in found]

    def _update(self, key: Any, updates: Sequence[Any]) -> None:
        state = self._bucket[key]
        for item, *value in updates:
            if value:
                state[item] = value[0]
            else:
                state.pop(item, None)


_NOTHING: Mapping[Any, Any] = {}
