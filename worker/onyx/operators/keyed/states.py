"""One state of a task by key: values, lists or maps, with what has changed since the last chunk.

A value is recorded as a whole. Of a list what was appended is recorded, and of a map the items that
were set or removed, unless more has happened to them. An empty list or map is not there.

Whoever gets a list or a map looks at it only: changes go through the methods here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from onyx.keystate.buckets import Bucket, Form, Frozen, Holder
from onyx.keystate.groups import Keys, Shards, dump_key, dump_keys, load_key, load_keys
from onyx.keystate.records import (
    AddUpdates,
    DeleteGroups,
    Record,
    Records,
    SetStates,
    append,
)

_EXTENT = 0
"""The number in records, which windows have for extents."""
ABSENT: Final[Any] = object()
"""In place of a state: the key has none."""


def _alike(value: Any) -> Any:
    return value


class States(ABC):
    """The state of one name, by key (`keystate.groups.hashable_key`)."""

    def __init__(self, name: str, form: Form, shards: Shards, holder: Holder) -> None:
        self.name = name
        self._shards = shards
        self._bucket: Bucket = holder.bucket(form, shards)
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

    def get_all(self, keys: Sequence[Any], default: Any = None) -> list[Any]:
        """The states of several keys as they are kept."""
        return self._bucket.get_all(keys, default)

    def remove(self, key: Any) -> None:
        """A key loses the state, if it has it."""
        if key in self._bucket:
            del self._bucket[key]
            self._changed(key)

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
            groups, dumped = self._bucket.dumped(keys)
            append(records, shard, SetStates(self.name, _EXTENT, groups, dumped))

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

    @abstractmethod
    def _loaded(self, data: Any) -> Any:
        """A state from what was recorded of it."""

    def _updates(self, state: Any, mark: Any) -> list[Any]:
        """What is recorded of a state of which only a part has changed."""
        raise NotImplementedError("recorded as a whole")

    def _update(self, key: Any, updates: Sequence[Any]) -> None:
        """Apply what `_updates` gave."""
        raise NotImplementedError("recorded as a whole")


class Values(States):
    """A plain value a key. Nobody changes a value that is here: another one replaces it."""

    def __init__(self, name: str, shards: Shards, holder: Holder) -> None:
        form = Form(lambda: None, _alike, lambda key, data: data, is_plain=True)
        super().__init__(name, form, shards, holder)
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

    def _loaded(self, data: Any) -> Any:
        return data


class Lists(States):
    """A list of plain values a key."""

    def __init__(self, name: str, shards: Shards, holder: Holder) -> None:
        super().__init__(name, Form(list, list, lambda key, data: list(data)), shards, holder)

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


class Maps(States):
    """A map of plain values a key."""

    def __init__(self, name: str, shards: Shards, holder: Holder) -> None:
        form = Form(dict, _dumped_map, lambda key, data: _loaded_map(data))
        super().__init__(name, form, shards, holder)

    def get(self, key: Any) -> Mapping[Any, Any]:
        """The map of a key; an empty one if it has none."""
        found: Mapping[Any, Any] = self._bucket.get(key, _NOTHING)
        return found

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

    def put(self, key: Any, items: Mapping[Any, Any]) -> None:
        """Give a key another map."""
        if not items:
            self.remove(key)
            return
        self._bucket[key] = dict(items)
        self._changed(key)

    def _mark(self, key: Any, item: Any) -> None:
        if key not in self._whole:
            self._parts.setdefault(key, {})[item] = None

    def _loaded(self, data: Any) -> dict[Any, Any]:
        return _loaded_map(data)

    def _updates(self, state: Any, mark: Any) -> list[Any]:
        return [[item, state[item]] if item in state else [item] for item in mark]

    def _update(self, key: Any, updates: Sequence[Any]) -> None:
        state = self._bucket[key]
        for item, *value in updates:
            if value:
                state[item] = value[0]
            else:
                state.pop(item, None)


_NOTHING: Mapping[Any, Any] = {}


def _dumped_map(state: dict[Any, Any]) -> list[list[Any]]:
    return [list(state), list(state.values())]


def _loaded_map(data: Any) -> dict[Any, Any]:
    return dict(zip(*data, strict=True))
