"""Trigger `segment`: fires with every `threshold`-th segment of a group, for the extents of that
segment, or with `fireAllExtents` for all of the group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onyx.flow.batch import Segment
from onyx.keystate.extents import Number
from onyx.windows.triggers.trigger import Trigger, TriggerDeclaration, WindowView
from onyx.windows.units import standard


class SegmentTrigger(Trigger):
    """Its state is how many segments a group has got since it fired; none after firing."""

    by_segment = True

    def __init__(self, declaration: TriggerDeclaration) -> None:
        super().__init__(declaration)
        threshold = declaration.trigger.threshold
        assert threshold is not None, "checked when the job is parsed"
        self.threshold = standard(threshold)

    def on_segment(
        self,
        window: WindowView,
        key: Any,
        extents: Sequence[Any],
        segment: Segment,
        coordinate: Number,
    ) -> Sequence[Any]:
        """Count the segment; see `Trigger.on_segment`."""
        count = counted(self.states.get(key, 0), self.threshold)
        if count < self.threshold:
            self.states.set(key, count)
            return ()
        self.states.delete(key)
        return self.looked_at(window, key, extents)

    def is_quiet(self, key: Any, many: int) -> bool:
        """Whether it does not fire for so many segments more of a group."""
        count: int = self.states.get(key, 0) % self.threshold + many
        return count < self.threshold

    def add(self, counts: Mapping[Any, int]) -> None:
        """Count segments of groups for which it does not fire."""
        for key, many in counts.items():
            self.states.set(key, self.states.get(key, 0) % self.threshold + many)


def counted(count: int, threshold: int) -> int:
    """The count after one more segment; the trigger fires at `threshold`, then counts from 1."""
    return count % threshold + 1
