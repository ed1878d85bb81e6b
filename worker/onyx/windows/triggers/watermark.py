"""Triggers `watermark` and `percentile-watermark`: fire when the watermark has come far enough.

`watermark` fires when nothing more is expected for an extent: the watermark is past its last
coordinate (and the delay); a session is over when the watermark is past its gap too.
`percentile-watermark` fires when the watermark has reached a share of the extent. Both fire again,
with the next watermark, for extents that have got more segments since.

Where nobody assigns watermarks, `percentile-watermark`, and `watermark` with `fireAllExtents`,
follow the rule of the original's version 0.9: each segment is compared with extents (its own, or
all of its group), which fire as often as a segment lies at their end or share, or beyond. (Without
`fireAllExtents`, a `watermark` trigger of 0.9 never fired.)

An extent that a `watermark` trigger discards is removed altogether: nothing more is expected for
it, and a segment that comes in spite of that begins it anew all the same. Otherwise memory would
grow with all extents that there have ever been.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyx.errors import UserError
from onyx.flow.batch import Segment
from onyx.keystate.extents import Number
from onyx.windows.triggers.trigger import Trigger, TriggerDeclaration, WindowView
from onyx.windows.units import standard


class WatermarkTrigger(Trigger):
    """Fires at the end of an extent."""

    def __init__(self, declaration: TriggerDeclaration) -> None:
        super().__init__(declaration)
        delay = declaration.trigger.delay
        self.delay = 0 if delay is None else standard(delay)
        self.by_segment = not declaration.assigned and self._compares(declaration)
        self.by_watermark = not self.by_segment

    def _compares(self, declaration: TriggerDeclaration) -> bool:
        """Whether segments are compared with extents where nobody assigns watermarks."""
        return declaration.trigger.fire_all_extents

    def check_lateness(self, lateness: int | None, where: str) -> None:
        """A delay must not be longer than late segments are waited for."""
        if lateness is not None and self.by_watermark and self.delay > lateness:
            raise UserError(
                f"{where}: trigger {self.name} has a delay that is longer than allowedLateness, "
                "so extents would be dropped before it fires; make allowedLateness as long"
            )

    @property
    def forgets(self) -> bool:
        """Whether the extents go when the trigger has fired."""
        return self.refinement.evicts or self.refinement.discards

    def due(self, lower: Number, upper: Number, gap: int) -> Number:
        """One more than the last coordinate: the watermark must be past it, and coordinates may be
        fractions."""
        return upper + gap + self.delay + 1

    def reached(self, coordinate: Number, lower: Number, upper: Number) -> bool:
        """Whether a segment at `coordinate` makes an extent fire that is compared with segments."""
        return coordinate >= upper

    def on_segment(
        self,
        window: WindowView,
        key: Any,
        extents: Sequence[Any],
        segment: Segment,
        coordinate: Number,
    ) -> Sequence[Any]:
        """Compare the segment with extents; see `Trigger.on_segment`."""
        return [
            extent
            for extent in self.looked_at(window, key, extents)
            if self.reached(coordinate, *window.bounds(extent))
        ]


class PercentileWatermarkTrigger(WatermarkTrigger):
    """Fires at a share of an extent."""

    def __init__(self, declaration: TriggerDeclaration) -> None:
        super().__init__(declaration)
        share = declaration.trigger.watermark_percentage
        assert share is not None, "checked when the job is parsed"
        self._share = share

    def _compares(self, declaration: TriggerDeclaration) -> bool:
        return True

    @property
    def forgets(self) -> bool:
        """More is expected for an extent of which only a share has come."""
        return self.refinement.evicts

    def due(self, lower: Number, upper: Number, gap: int) -> Number:
        """The coordinate at the share of the extent."""
        return lower + self._share * (upper - lower)

    def reached(self, coordinate: Number, lower: Number, upper: Number) -> bool:
        """Whether a segment at `coordinate` makes an extent fire that is compared with segments."""
        return coordinate >= lower + self._share * (upper - lower)
