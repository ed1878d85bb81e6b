"""What comes out of windows: firings, and which segments were late.

Values only. The task calls the user's `sync` and `emit` with them; a firing is
complete by itself, so that this may happen later and its state is the one at the moment of firing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from onyx.flow.batch import Segment
from onyx.flow.columns.record_batch import Columns
from onyx.keystate.extents import Number
from onyx.keystate.pages import Made
from onyx.keystate.records import EventType
from onyx.model.job import Trigger, Window


class Firing(NamedTuple):
    """One extent handed to one trigger's functions. (A tuple: thousands are made at once.)"""

    window: Window
    trigger: Trigger
    event_type: EventType
    shard: int
    grouped: bool
    group: Any
    """The group's key as the user's function or key gave it; None when the task is not grouped."""
    lower: Number
    """First coordinate of the extent; minus infinity for a global window."""
    upper: Number
    """Last coordinate of the extent; infinity for a global window."""
    state: Any
    """State of the extent at this moment; nothing changes it afterwards."""
    segment: Segment | None = None
    """The segment that made it fire, for `new-segment`."""
    watermark: Number | None = None
    """Event time up to which everything has come, as far as known."""

    def state_event(self) -> Mapping[str, Any]:
        """The mapping that user functions get as their state event."""
        return {
            "event_type": self.event_type,
            "segment": self.segment,
            "grouped": self.grouped,
            "group_key": self.group,
            "lower_bound": self.lower,
            "upper_bound": self.upper,
            "window": self.window,
            "watermark": self.watermark,
        }


class FiringRows(msgspec.Struct, frozen=True):
    """Groups of one window that one trigger hands to its functions together (`firing_rows`)."""

    window: Window
    trigger: Trigger
    event_type: EventType
    grouped: bool
    rows: Columns
    """A row a group, those of a shard together."""
    shards: Mapping[int, slice]
    """The rows of each shard."""
    watermark: Number | None = None
    """Event time up to which everything has come, as far as known for all."""

    def of(self, shard: int) -> Columns:
        """The rows of a shard."""
        mine = self.shards[shard]
        return self.rows.slice(mine.start, mine.stop)

    def state_event(self) -> Mapping[str, Any]:
        """The mapping that user functions get as their state event: what all rows have in
        common."""
        return {
            "event_type": self.event_type,
            "segment": None,
            "grouped": self.grouped,
            "window": self.window,
            "watermark": self.watermark,
        }


AnyFiring = Firing | FiringRows | Made

Pages = Iterator[list[AnyFiring]]
"""What fires at one moment, page by page. The firings of a page have fired and have changed the
state; those of the next page have not, until it is asked for. Between two pages changes may be
taken, and questions answered; nothing else may be done before the last page."""
PENDING: Final[list[AnyFiring]] = []
"""This very page: the next one is being computed elsewhere, and is to be asked for later."""


class Added(msgspec.Struct, frozen=True):
    """What became of a batch."""

    firings: list[AnyFiring]
    """In the order in which they are to be carried out."""
    late: list[int]
    """Indices of the segments that are late for every window that they belong to."""
