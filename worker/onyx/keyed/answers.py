"""What questions see of states by key: each group has one extent, without bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import Any

from onyx.keyed.states import States
from onyx.keyed.store import KeyedStore
from onyx.model.state_types import StateType
from onyx.windows.firing import ALL, FROM, TO, Extent
from onyx.windows.groups import Shards, group_value, hashable_key
from onyx.windows.records import Record, of_window
from onyx.windows.selection import Selection, place


class OneState:
    """One state of a function, restored to be asked."""

    def __init__(self, name: str, declared: StateType, shards: Shards) -> None:
        """`name`: without that of the task."""
        self._name = name
        self._store = store = KeyedStore(shards)
        makers = {"value": store.values, "list": store.lists, "map": store.maps}
        self._states: States = makers[declared.shape](name)

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records of this state to a shard."""
        self._store.restore(shard, of_window(records, self._name))

    def query(self, asked: Selection, extents_max: int | None) -> list[Extent]:
        """What is asked for, as of `extents_of`."""
        return extents_of(self._states, asked, extents_max)


def extents_of(states: States, asked: Selection, extents_max: int | None) -> list[Extent]:
    """The groups that are asked for; the first in order, if only some are wanted. Only their
    states are copied."""
    found: Iterable[tuple[tuple[Any, ...], Any, Any]] = _selected(states, asked)
    if extents_max is not None:
        found = nsmallest(extents_max, found, key=itemgetter(0))
    return [Extent(group, FROM, TO, states.peek(key)) for _, key, group in found]


def _selected(states: States, asked: Selection) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Groups with their places and keys."""
    behind = None if asked.after is None else asked.after.order
    keys = states.keys() if asked.key is ALL else [hashable_key(asked.key)]
    by_group = asked.key is ALL and asked.by_group
    for key in keys:
        group = group_value(key)
        if key not in states or (by_group and not asked.has_group(group)):
            continue
        order = place(group, FROM, TO, ()).order
        if behind is None or order > behind:
            yield order, key, group
