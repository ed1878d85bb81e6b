"""Buckets: states by group, and who makes them.

A window holds all its state in buckets, so that whoever runs it may hand in others than these,
which keep everything in memory: `state/local/spilled.py` has some that put on disk what is used
least. Therefore windows ask for groups by iterating, keep no state between two calls, and have
`trim` called when a call ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol

from onyx.windows.groups import Shards

Pair = tuple[Any, Any]
"""A group and its state."""


class Form(NamedTuple):
    """Of what a bucket holds."""

    init: Callable[[], Any]
    """The first state of a group."""
    dump: Callable[[Any], Any]
    """A state as plain data."""
    load: Callable[[Any, Any], Any]
    """The state of a group from that."""


class Bucket(dict[Any, Any]):
    """States by group; a group that is not there begins with the first state."""

    __slots__ = ("_init", "_shards")

    def __init__(self, form: Form, shards: Shards) -> None:
        super().__init__()
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
        found = {n: keys for n, keys in self._split().items() if n in wanted}
        return lambda shard: found.get(shard, ())

    def parts(self, most: int) -> Iterator[tuple[int, list[Pair]]]:
        """All groups with their states, shard by shard and at most so many at a time; those that
        were given may be changed and removed."""
        for shard, keys in self._split().items():
            for part in pages(keys, most):
                yield shard, [(key, self[key]) for key in part]

    def _split(self) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}
        for key, shard in zip(self, map(self._shards.__getitem__, self), strict=True):
            found.setdefault(shard, []).append(key)
        return found

    def remove(self, keys: Iterable[Any]) -> None:
        """Groups that are there go."""
        for key in keys:
            del self[key]

    def used(self, keys: Iterable[Any]) -> None:
        """These are what was used last."""

    def free(self) -> None:
        """Nothing is asked of it any more."""


def pages(items: Iterable[Any], most: int) -> Iterator[list[Any]]:
    """All of them, in order, at most so many at a time."""
    rest = iter(items)
    while page := list(islice(rest, most)):
        yield page


class Frozen(Protocol):
    """Buckets as they were at one moment, for any thread."""

    def pages(self, bucket: Bucket, shard: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """Groups of a shard and their states, as plain data, some at a time."""
        ...


class Holder(Protocol):
    """Makes the buckets of a task."""

    in_memory: bool
    """Whether it does not matter how much windows remember of their groups."""

    def bucket(self, form: Form, shards: Shards) -> Bucket: ...

    def trim(self) -> None:
        """Between two calls: no state is in use."""
        ...

    def freeze(self) -> Frozen | None:
        """None where everything is at hand, so that it can be told at once."""
        ...


class InMemory:
    """All of it."""

    in_memory = True

    def bucket(self, form: Form, shards: Shards) -> Bucket:
        return Bucket(form, shards)

    def trim(self) -> None:
        """There is room."""

    def freeze(self) -> None:
        """Everything is at hand."""
