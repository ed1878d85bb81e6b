"""The windows of a task ready to run: what `compile` makes of the job, and peers work with."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from onyx.model.job import Window
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.assigning.coordinates import Coordinates
from onyx.windows.triggers.trigger import Trigger

FIRINGS_PAGE_MAX = 1_000
"""Firings that are objects, made at once."""


class CompiledWindow(msgspec.Struct, frozen=True):
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

    def page_size(self, most: int) -> int:
        """How many groups fire at once: so many, but fewer where each becomes an object."""
        if self.triggers and all(each.in_rows for each in self.triggers):
            return most
        return min(most, FIRINGS_PAGE_MAX)


class CompiledWindows(msgspec.Struct, frozen=True):
    """What `TaskWindows` runs."""

    task: str
    windows: tuple[CompiledWindow, ...]
    grouped: bool

    def only_folding(self) -> CompiledWindows:
        """The windows without what makes them fire or refuse segments, for whoever folds a part of
        the segments."""
        windows = tuple(replace(each, triggers=(), lateness=None) for each in self.windows)
        return CompiledWindows(self.task, windows, self.grouped)

    @property
    def columns(self) -> bool:
        """Whether the task takes columns."""
        return any(each.columns for each in self.windows)
