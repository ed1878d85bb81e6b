"""The keyed state of one task on one peer, over the shards of state that the peer owns, and what
questions see of it: each group has one extent, without bounds.

States have names and are made once, before anything is restored. Records are those of windows
(`keystate.records`) with the name of a state in place of that of a window, so the state log,
upgrades and readers know no second format. A name that begins with a dot is Onyx's own.

When a call raises, the state is between two batches and must be restored before it is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

from onyx.errors import UserError
from onyx.keystate.buckets import Holder, InMemory
from onyx.keystate.extents import ALL, FROM, TO, Extent, Number
from onyx.keystate.groups import Shards, group_value, hashable_key
from onyx.keystate.records import Record, Records, WindowRecord, of_window
from onyx.keystate.selection import Selection, place
from onyx.model.state_types import StateType
from onyx.operators.keyed.states import Lists, Maps, States, Values

Kind = TypeVar("Kind", bound=States)


Keyed = tuple[Any, Number, Number]
"""A key, with the bounds of its extent."""


class KeyedStore:
    """All states of a task."""

    def __init__(self, shards: Shards, holder: Holder | None = None) -> None:
        """
        Args:
            shards: gives the shard of a key.
            holder: has the states; None: in memory.
        """
        self.shards = shards
        self.holder = holder or InMemory()
        self.states: dict[str, States] = {}
        self._upon_restored: list[Callable[[], None]] = []

    def values(self, name: str) -> Values:
        """A new state, of values."""
        return self._added(Values(name, self.shards, self.holder))

    def lists(self, name: str) -> Lists:
        """A new state, of lists."""
        return self._added(Lists(name, self.shards, self.holder))

    def maps(self, name: str) -> Maps:
        """A new state, of maps."""
        return self._added(Maps(name, self.shards, self.holder))

    def _added(self, states: Kind) -> Kind:
        assert states.name not in self.states, "each name once"
        self.states[states.name] = states
        return states

    def trim(self) -> None:
        """Put on disk what was used least. Between two calls, when no state is in use."""
        for states in self.states.values():
            states.free()
        self.holder.trim()

    # What is recorded and restored.

    def take_changes(self) -> Records:
        """What has changed since the last call, by shard."""
        records: Records = {}
        for each in self.states.values():
            each.take_changes(records)
        return records

    def freeze(self, shards: Collection[int]) -> Callable[[int], Iterable[Record]]:
        """What gives the whole state of each of these shards as it is now: once, later, from any
        thread."""
        frozen = self.holder.freeze()
        parts = [each.records(frozen) for each in self.states.values()]

        def of_shard(shard: int) -> Iterable[Record]:
            return chain.from_iterable(part(shard) for part in parts)

        if self.holder.in_memory:
            return {shard: list(of_shard(shard)) for shard in shards}.__getitem__
        return of_shard

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records of `take_changes` or `freeze`, in order, to a shard. Before anything else
        is done with the states, and `restored` behind the last shard.

        Raises:
            UserError: the state is of a name that the task does not have.
        """
        self.shards.known[shard] = None
        for record in records:
            assert isinstance(record, WindowRecord), "the state log of a task with state"
            states = self.states.get(record.window)
            if states is None:
                raise UserError(
                    f"there is no state {record.window!r}, but {', '.join(self.states)}"
                )
            states.restore(record)
            self.holder.trim()

    def upon_restored(self, call: Callable[[], None]) -> None:
        """Have this called when all is restored: for what is made of states and not recorded."""
        self._upon_restored.append(call)

    def restored(self) -> None:
        """All shards are restored."""
        for call in self._upon_restored:
            call()
        self.holder.trim()


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
