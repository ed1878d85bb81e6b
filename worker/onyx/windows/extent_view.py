"""What triggers see of their window, and what its extents fire (`triggers.trigger.WindowView`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyx.flow.segment import Segment
from onyx.model.job import Trigger as Declared
from onyx.windows.compiled import CompiledWindow
from onyx.windows.firing import EventType, Firing, Number
from onyx.windows.groups import Shards, group_value
from onyx.windows.shard_watermarks import ShardWatermarks
from onyx.windows.types.extents import GONE, Extents


class ExtentView:
    """The extents of one window on one peer; nothing here changes them."""

    def __init__(
        self,
        compiled: CompiledWindow,
        extents: Extents[Any],
        shards: Shards,
        watermarks: ShardWatermarks,
        grouped: bool,
        triggers: int,
    ) -> None:
        """`triggers`: how many the window has."""
        self._declared = compiled.window
        self._aggregation = compiled.aggregation
        self._extents = extents
        self._shards = shards
        self._watermarks = watermarks
        self._grouped = grouped
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
            self._declared, trigger, event_type, shard, self._grouped, group_value(key),
            *self._extents.bounds(extent), self._aggregation.view(self._extents.get(key, extent)),
            segment, self._watermarks.known(shard),
        )  # fmt: skip

    def event(self, event_type: EventType, key: Any, segment: Segment | None) -> dict[str, Any]:
        """The state event for users' functions, about no extent in particular."""
        return {
            "event_type": event_type,
            "segment": segment,
            "grouped": self._grouped,
            "group_key": group_value(key),
            "window": self._declared,
            "watermark": self._watermarks.known(self._shards[key]),
        }
