"""Buckets: states by group, and the holder that makes them.

A window has all its states in buckets. Who runs the window chooses the holder: `InMemory` here, or
`state/local/spilled`, which puts on the local disk what is used least. Therefore windows ask for
groups by iterating, keep no state between two calls, and have `trim` called when a call ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol, overload

import pyarrow as pa

from onyx.keystate.groups import Shards, dump_keys

Pair = tuple[Any, Any]
"""A group and its state."""


class GroupColumns(NamedTuple):
    """Groups and the views of their states as columns."""

    groups: pa.Array
    states: pa.Array
    shards: Mapping[int, slice]
    """The rows of each shard."""
    bounds: tuple[pa.Array, ...] | None = None
    """The first and the last coordinates; None: all are of one extent."""


class PairsInArrays(Sequence[Pair]):
    """Groups with their states that are kept in arrays: pairs, for who looks at single ones, made
    then. To be read before the states change."""

    _pairs: list[Pair] | None = None

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._made())

    @overload
    def __getitem__(self, index: int) -> Pair: ...

    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...

    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        return self._made()[index]

    def _made(self) -> list[Pair]:
        if self._pairs is None:
            self._pairs = list(zip(self.groups(), self.states(), strict=True))
        return self._pairs

    def groups(self) -> list[Any]:
        """The groups."""
        raise NotImplementedError

    def states(self) -> list[Any]:
        """Their states, as Python has them."""
        raise NotImplementedError

    def held(self) -> GroupColumns | None:
        """Both as columns; None: no column holds the groups."""
        raise NotImplementedError


def keys_of(pairs: Sequence[Pair]) -> list[Any]:
    """The groups of some pairs."""
    return pairs.groups() if isinstance(pairs, PairsInArrays) else [key for key, _ in pairs]


class BucketForm(NamedTuple):
    """What the states of a bucket are."""

    init: Callable[[], Any]
    """The first state of a group."""
    dump: Callable[[Any], Any]
    """A state as plain data."""
    load: Callable[[Any, Any], Any]
    """The state of a group from its plain data."""
    is_plain: bool = False
    """Whether `dump` gives back the state itself."""


class Bucket(dict[Any, Any]):
    """States by group; a group that is not there begins with the first state."""

    __slots__ = ("_form", "_init", "_shards")

    def __init__(self, form: BucketForm, shards: Shards) -> None:
        super().__init__()
        self._form = form
        self._init = form.init
        self._shards = shards

    def __missing__(self, key: Any) -> Any:
        state = self[key] = self._init()
        return state

    def groups(self, shards: Collection[int] | None = None) -> Iterable[Any]:
        """Groups of some shards, or all; meanwhile they may be changed and removed."""
        if shards is None:
            return list(self)
        known = self._shards
        return [key for key in self if known[key] in shards]

    def by_shard(self, shards: Collection[int]) -> Callable[[int], Iterable[Any]]:
        """What gives the groups of each of these shards, as `groups` does."""
        wanted = frozenset(shards)
        found = {shard: keys for shard, keys in self.split() if shard in wanted}
        return lambda shard: found.get(shard, ())

    def parts(self, most: int) -> Iterator[tuple[int, Sequence[Pair]]]:
        """All groups with their states, shard by shard and at most so many at a time; those that
        were given may be changed and removed."""
        for shard, keys in list(self.split()):
            for part in pages(keys, most):
                yield shard, [(key, self[key]) for key in part]

    def dumped(self, keys: list[Any]) -> tuple[list[Any], list[Any]]:
        """These groups and their states as plain data."""
        states = list(map(self.__getitem__, keys))
        return dump_keys(keys), states if self._form.is_plain else list(
            map(self._form.dump, states)
        )

    def get_all(self, keys: Sequence[Any], default: Any = None) -> list[Any]:
        """The state of each of some groups."""
        return [self.get(key, default) for key in keys]

    def present(self, keys: Iterable[Any]) -> list[Any]:
        """Which of some groups are there."""
        return [key for key in keys if key in self]

    def pairs(self, keys: Sequence[Any] | None = None) -> Sequence[Pair]:
        """The groups of these that are there, or all, with their states."""
        if keys is None:
            return list(self.items())
        return [(key, self[key]) for key in keys if key in self]

    def remove(self, keys: Iterable[Any]) -> None:
        """Groups that are there go."""
        for key in keys:
            del self[key]

    def used(self, keys: Iterable[Any]) -> None:
        """These groups were used last."""

    def free(self) -> None:
        """The bucket is not used any more."""

    def split(self) -> Iterator[tuple[int, list[Any]]]:
        """Each shard that groups are in, with its groups."""
        keys = list(self)
        for shard, indices in self._shards.split(keys):
            yield shard, list(map(keys.__getitem__, indices))


def pages(items: Iterable[Any], most: int) -> Iterator[list[Any]]:
    """All of them, in order, at most so many at a time."""
    rest = iter(items)
    while page := list(islice(rest, most)):
        yield page


class Frozen(Protocol):
    """Buckets as they were at one moment."""

    def pages(self, bucket: Bucket, shard: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """Groups of a shard and their states, as plain data, some at a time."""
        ...

    def maps(self, bucket: Bucket, shard: int) -> Iterator[tuple[Any, Iterable[Pair]]]:
        """Groups of a shard, as plain data, each with the entries of its map."""
        ...


class Holder(Protocol):
    """Makes the buckets of a task."""

    in_memory: bool
    """Whether all states are in memory: then windows may remember something of each group, and
    what `freeze` gives must be read before anything changes."""

    @property
    def spilled(self) -> int | None:
        """States that are not in memory; None: all are. From any thread; may raise RuntimeError."""
        ...

    def bucket(self, form: BucketForm, shards: Shards) -> Bucket:
        """A new bucket, empty."""
        ...

    def maps(self, shards: Shards) -> Bucket:
        """A new bucket of maps (`keystate.entries`), empty."""
        ...

    def trim(self) -> None:
        """Called between two calls of a window, when no state is in use."""
        ...

    def freeze(self) -> Frozen:
        """All buckets as they are now; if not `in_memory`, for any thread, at any later time."""
        ...


_MAPS = BucketForm(dict, dict.items, lambda key, data: dict(data))


class InMemory:
    """Holds all states in memory."""

    in_memory = True
    spilled = None

    def bucket(self, form: BucketForm, shards: Shards) -> Bucket:
        """A dict."""
        return Bucket(form, shards)

    def maps(self, shards: Shards) -> Bucket:
        """A dict of dicts."""
        return Bucket(_MAPS, shards)

    def trim(self) -> None:
        """There is room."""

    def freeze(self) -> Frozen:
        """All buckets as they are now; if not `in_memory`, for any thread, at any later time."""
        return _AtHand()


class _AtHand:
    """The buckets themselves, each split by shard once."""

    def __init__(self) -> None:
        self._split: dict[int, dict[int, list[Any]]] = {}
        """By the identity of the bucket."""

    def pages(self, bucket: Bucket, shard: int) -> Iterator[tuple[list[Any], list[Any]]]:
        groups = self._split.get(id(bucket))
        if groups is None:
            groups = self._split[id(bucket)] = dict(bucket.split())
        if shard in groups:
            yield bucket.dumped(groups[shard])

    def maps(self, bucket: Bucket, shard: int) -> Iterator[tuple[Any, Iterable[Pair]]]:
        """Groups of a shard, as plain data, each with the entries of its map."""
        for keys, states in self.pages(bucket, shard):
            yield from zip(keys, states, strict=True)
