"""What triggers (`triggers.trigger.WindowView`) and questions see of the extents of a window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import Any

from onyx.flow.segment import Segment
from onyx.keystate.extents import ALL, Extent, Number
from onyx.keystate.groups import group_value, hashable_key
from onyx.keystate.records import EventType
from onyx.keystate.selection import Selection, order_of
from onyx.model.job import Trigger as Declared
from onyx.windows.firing import Firing
from onyx.windows.types.extents import GONE, Extents, OnPeer

Placed = tuple[tuple[Any, ...], Any, Any]
"""An extent with its order among answers (`Place.order`): that, the group, and the extent."""
_order = itemgetter(0)


class ExtentView:
    """The extents of one window on one peer; nothing here changes them."""

    def __init__(
        self, on_peer: OnPeer, extents: Extents[Any], grouped: bool, triggers: int
    ) -> None:
        """`triggers`: how many the window has."""
        self._declared = on_peer.compiled.window
        self._aggregation = on_peer.compiled.aggregation
        self._extents = extents
        self._shards = on_peer.shards
        self._watermarks = on_peer.watermarks
        self.grouped = grouped
        self._triggers = triggers

    def bounds(self, extent: Any) -> tuple[Number, Number]:
        """First and last coordinate of an extent."""
        return self._extents.bounds(extent)

    def extents(self, key: Any) -> Sequence[Any]:
        """All extents of a group."""
        return self._extents.find(key)

    def held(self, key: Any, extents: Sequence[Any]) -> Sequence[Any]:
        """The extents that no trigger before has removed from a group."""
        if self._triggers == 1:
            return extents
        return [extent for extent in extents if self._extents.get(key, extent) is not GONE]

    def firing(
        self, trigger: Declared, event_type: EventType, key: Any, extent: Any,
        segment: Segment | None,
    ) -> Firing:  # fmt: skip
        """What an extent would fire; nothing changes."""
        shard = self._shards[key]
        return Firing(
            self._declared, trigger, event_type, shard, self.grouped, group_value(key),
            *self._extents.bounds(extent), self._aggregation.view(self._extents.get(key, extent)),
            segment, self._watermarks.known(shard),
        )  # fmt: skip

    def event(self, event_type: EventType, key: Any, segment: Segment | None) -> dict[str, Any]:
        """The state event for users' functions, about no extent in particular."""
        return {
            "event_type": event_type,
            "segment": segment,
            "grouped": self.grouped,
            "group_key": group_value(key),
            "window": self._declared,
            "watermark": self._watermarks.known(self._shards[key]),
        }

    def look_up(self, keys: Sequence[Any]) -> list[list[Any]]:
        """For each group a list with its state, which is empty if it has none."""
        view, states = self._aggregation.view, self._extents.look_up(keys)
        return [[] if state is GONE else [view(state)] for state in states]

    def query(self, asked: Selection, extents_max: int | None) -> list[Extent]:
        """The extents that are asked for; the first in order, if only some are wanted. Only their
        states are copied."""
        found: Iterable[Placed] = self.places(asked)
        if extents_max is not None:
            found = nsmallest(extents_max, found, key=_order)
        return [self.shown(key, extent) for _, key, extent in found]

    def shown(self, key: Any, extent: Any) -> Extent:
        """An extent of a group, with a copy of the state."""
        return Extent(
            group_value(key),
            *self._extents.bounds(extent),
            self._aggregation.view(self._extents.get(key, extent)),
            self._of_session(extent),
        )

    def places(self, asked: Selection) -> Iterator[Placed]:
        """The extents that are asked for, in any order."""
        bounds = self._extents.bounds
        behind = None if asked.after is None else asked.after.order
        by_group = asked.key is ALL and asked.by_group
        for key, extent in self._candidates(asked):
            group = group_value(key)
            if by_group and not asked.has_group(group):
                continue
            order = order_of(group, *bounds(extent), self._of_session(extent))
            if behind is None or order > behind:
                yield order, key, extent

    def _of_session(self, extent: Any) -> tuple[Any, ...]:
        return tuple(map(group_value, self._extents.of_session(extent)))

    def _candidates(self, asked: Selection) -> Iterator[tuple[Any, Any]]:
        if asked.key is ALL:
            yield from self._extents.everything(asked.has_extent)
            return
        key = hashable_key(asked.key)
        for extent in self._extents.find(key):
            if asked.has_extent(*self._extents.bounds(extent)):
                yield key, extent
