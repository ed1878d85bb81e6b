"""Maps by entry: in the order of their keys, whole or a range of them.

A map that a task keeps for one group may have a million entries. So nobody who wants a few of them
goes through a copy of it, and whoever wants all takes them one by one. In memory a map is a dict,
which is looked through; on the local disk entries lie in order (`state/local/spilled`).

Keys are in the order of answers, numbers, texts, bytes, so a map is the same wherever its entries
are. Rejected: the order in which they were put, which would need a number for each entry, and a
second place on disk.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from itertools import islice
from typing import Any

from onyx.keystate.buckets import Pair

Step = int | str | bytes
"""A key of a map."""
SOME = 1_000
"""Keys of a large map by which it is told where a page may end."""
_KINDS = {int: 0, str: 1, bytes: 2}


class Entries(MutableMapping[Any, Any]):
    """A map of which only some entries are in memory."""

    @abstractmethod
    def in_order(
        self, first: Step | None = None, end: Step | None = None, behind: Step | None = None
    ) -> Iterator[Pair]:
        """Entries in the order of their keys, as the function of this name gives them."""

    def items(self) -> ItemsView[Any, Any]:
        """Keys and values, which do not come into memory to stay."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """Values, which do not either."""
        return _Values(self)

    @abstractmethod
    def free(self) -> None:
        """The map is not used any more."""


class _Items(ItemsView[Any, Any]):
    _mapping: Entries

    def __iter__(self) -> Iterator[Pair]:
        return self._mapping.in_order()


class _Values(ValuesView[Any]):
    _mapping: Entries

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping.in_order())


def in_order(
    state: Mapping[Any, Any],
    first: Step | None = None,
    end: Step | None = None,
    most: int | None = None,
    behind: Step | None = None,
) -> Iterator[Pair]:
    """Entries in the order of their keys, as they are now, whatever changes meanwhile.

    Args:
        first: the first key of a range; only keys of its type are in it.
        end: the key before which the range ends.
        most: so many at most, the first ones.
        behind: a key behind which they are, of whatever type.
    """
    if isinstance(state, Entries):
        return islice(state.in_order(first, end, behind), most)
    keys = list(state)
    if first is not None or end is not None:
        keys = [key for key in keys if _is_between(key, first, end)]
    # Keys of one type are nearly always all there are, and are compared without a call.
    kinds = set(map(type, keys))
    place = None if len(kinds) == 1 and kinds <= _KINDS.keys() else place_of_key
    if behind is not None and place is None and type(behind) in kinds:
        keys = [key for key in keys if key > behind]
    elif behind is not None:
        keys = [key for key in keys if place_of_key(key) > place_of_key(behind)]
    if most is not None and place is None:
        keys = _few(keys, most)
    keys.sort(key=place)
    return iter([(key, state[key]) for key in keys[:most]])


def _few(keys: list[Any], most: int) -> list[Any]:
    """Keys of one type among which the first so many are: some of a large map tell where these
    end, so that not all are sorted."""
    some = sorted(keys[:: max(len(keys) // SOME, 1)])
    last = 2 * most * len(some) // max(len(keys), 1) + 10
    if last >= len(some):
        return keys
    few = [key for key in keys if key <= some[last]]
    return few if len(few) >= most else keys


def _is_between(key: Any, first: Any, end: Any) -> bool:
    return (
        type(key) is type(end if first is None else first)
        and (first is None or key >= first)
        and (end is None or key < end)
    )


def place_of_key(key: Any) -> tuple[Any, ...]:
    """Where a key is in the order of keys."""
    kind = _KINDS.get(type(key))
    return (3, repr(key)) if kind is None else (kind, key)
