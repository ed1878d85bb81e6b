"""What questions see of states by key: each group has one extent, without bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import Any

from onyx.keystate.extents import ALL, FROM, TO, Extent, Number
from onyx.keystate.groups import Shards, group_value, hashable_key
from onyx.keystate.records import Record, of_window
from onyx.keystate.selection import Selection, place
from onyx.model.state_types import StateType
from onyx.operators.keyed.states import States
from onyx.operators.keyed.store import KeyedStore

Keyed = tuple[Any, Number, Number]
"""A key, with the bounds of its extent."""


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
    """The groups that are asked for; the first in order, if only some are wanted. A part of a map
    is the last one: the rest of the map comes before other groups."""
    keys = states.keys() if asked.key is ALL else [hashable_key(asked.key)]
    there = ((key, FROM, TO) for key in keys if key in states)
    found: list[Extent] = []
    for key, lower, upper in first_of(there, asked, extents_max):
        state, item = states.shown(key, asked)
        found.append(Extent(group_value(key), lower, upper, state, item=item))
        if item is not None:
            break
    return found


def first_of(keyed: Iterable[Keyed], asked: Selection, extents_max: int | None) -> list[Keyed]:
    """What is asked for; the first in order, if only some are wanted."""
    found: Iterable[tuple[tuple[Any, ...], Keyed]] = _selected(keyed, asked)
    if extents_max is not None:
        found = nsmallest(extents_max, found, key=itemgetter(0))
    return [each for _, each in found]


def _selected(keyed: Iterable[Keyed], asked: Selection) -> Iterator[tuple[tuple[Any, ...], Keyed]]:
    """What is asked for, each with its place in order."""
    after = asked.after
    behind = None if after is None else after.order
    begun = None if after is None or after.item is None else after._replace(item=None).order
    wanted = ALL if asked.key is ALL else hashable_key(asked.key)
    for each in keyed:
        key, lower, upper = each
        group = group_value(key)
        if key != wanted if wanted is not ALL else not asked.has_group(group):
            continue
        order = place(group, lower, upper, ()).order
        if behind is None or order > behind or order == begun:
            yield order, each
