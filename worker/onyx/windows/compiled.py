"""The windows of a task ready to run: what `compile` makes of the job, and peers work with."""

from __future__ import annotations

from dataclasses import dataclass

from onyx.model.job import Window
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.assigning.coordinates import Coordinates
from onyx.windows.triggers.trigger import Trigger


@dataclass(frozen=True, slots=True)
class CompiledWindow:
    """One window with its triggers."""

    window: Window
    aggregation: Aggregation
    coordinates: Coordinates | None
    """None for a global window, where every segment has the same coordinate."""
    triggers: tuple[Trigger, ...]
    lateness: int | None
    """How far the watermark may be past an extent that still takes segments; None: any."""
    watermark_of_segments: bool
    """Whether a watermark is needed that nobody assigns: then the segments are the watermark."""
    columns: bool = False
    """Whether the task takes columns."""


@dataclass(frozen=True, slots=True)
class CompiledWindows:
    """What `TaskWindows` runs."""

    task: str
    windows: tuple[CompiledWindow, ...]
    grouped: bool
