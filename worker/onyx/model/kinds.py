"""Aggregations, triggers and window types that come with Onyx: one row for each.

What the model, the peers and Spark must know of one before they run it stands in its row: which
keys it takes, and what an engine other than peers does with it. What it computes is a class in
`onyx.windows`, under the same name; a test compares the names. So a new aggregation is a class and
a row, and no engine asks for names.

Rejected: the facts as attributes of the classes. The operator and `onyx plan` check jobs without
NumPy and Arrow, which the classes need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

ACK_AGGREGATORS = ("collect", "count", "last", "max", "min", "sum")
"""How values that functions give back by `ack_return` are put together."""
EMIT_ROWS = "rows"
"""What stands in a trigger's `emit` in place of a function: each group becomes a segment."""


class Native(msgspec.Struct, frozen=True):
    """How an engine of columns computes an aggregation: what it keeps for a group and an extent.

    `Aggregation.finish` makes a state of that. Without a count and without numbers the engine
    collects what the segments hold, in order, and the aggregation itself folds it.
    """

    counts: bool = False
    """Whether it counts the segments."""
    merges: Literal["sum", "max", "min"] | None = None
    """How it merges the numbers that the segments hold; None: they hold none."""

    @property
    def collects(self) -> bool:
        """Whether it keeps what the segments hold."""
        return not self.counts and self.merges is None

    @property
    def compares(self) -> bool:
        """Whether it keeps one of the numbers; NaN is none that peers would keep."""
        return self.merges in ("max", "min")


COLLECTED = Native()


class AggregationKind(msgspec.Struct, frozen=True):
    """An aggregation."""

    name: str
    keyed: bool = True
    """Whether it takes a key of the segment."""
    takes_init: bool = False
    """Whether a window may give it a first state."""
    native: Native = COLLECTED
    """Unless it collects, its states are numbers that may be merged in any order."""


class TriggerKind(msgspec.Struct, frozen=True):
    """A trigger."""

    name: str
    looks_at: Literal["segments", "watermarks", "clock"]
    """What makes it fire. Spark sees no single segments of the windows that it aggregates."""
    key: str
    """The attribute of a trigger that is read by this kind alone."""
    settled: bool = False
    """Whether it fires an extent when all of it is there, so that states may be merged before."""
    fires_all: bool = False
    """Whether it fires all extents anyway."""


class WindowKind(msgspec.Struct, frozen=True):
    """A window type."""

    name: str
    aligned: bool = False
    """Whether its extents are laid out from `minValue`."""
    known: bool = True
    """Whether the extents of a segment follow from its coordinate alone."""
    overlapping: bool = False
    """Whether a segment may be in several extents."""
    single: bool = False
    """Whether it has one extent, which all segments are in."""
    ordered: bool = True
    """Whether it can keep an ordered log."""


AGGREGATIONS: Mapping[str, AggregationKind] = {
    row.name: row
    for row in (
        AggregationKind("average", native=Native(counts=True, merges="sum")),
        AggregationKind("collect-by-key"),
        AggregationKind("collect-key-value"),
        AggregationKind("conj", keyed=False),
        AggregationKind("count", keyed=False, native=Native(counts=True)),
        AggregationKind("max", takes_init=True, native=Native(merges="max")),
        AggregationKind("min", takes_init=True, native=Native(merges="min")),
        AggregationKind("sum", native=Native(merges="sum")),
    )
}
TRIGGERS: Mapping[str, TriggerKind] = {
    row.name: row
    for row in (
        TriggerKind("percentile-watermark", "watermarks", "watermark_percentage"),
        TriggerKind("punctuation", "segments", "pred"),
        TriggerKind("segment", "segments", "threshold"),
        TriggerKind("timer", "clock", "period", fires_all=True),
        TriggerKind("watermark", "watermarks", "delay", settled=True),
    )
}
WINDOWS: Mapping[str, WindowKind] = {
    row.name: row
    for row in (
        WindowKind("fixed", aligned=True),
        WindowKind("global", single=True),
        WindowKind("session", known=False, ordered=False),
        WindowKind("sliding", aligned=True, overlapping=True, ordered=False),
    )
}


def aggregation_name(aggregation: str | tuple[str, ...] | None) -> str:
    """The name of an aggregation, as a window gives it, without its keys; empty without one."""
    if isinstance(aggregation, str):
        return aggregation
    return aggregation[0] if aggregation else ""
