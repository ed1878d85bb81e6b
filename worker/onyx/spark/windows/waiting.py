"""Which extents of a window by Spark a watermark makes fire, and which it drops.

Of windows whose extents have numbers, each number waits. Of sessions a peer knows none: it knows a
watermark before which none is due, of what rows and results have; when that is reached, Spark
finds those that are. So what a peer keeps does not grow with groups.
"""

from __future__ import annotations

from typing import Protocol

from onyx.keystate.dues import Dues
from onyx.keystate.extents import Number
from onyx.keystate.records import SpooledPart
from onyx.model.kinds import WINDOWS
from onyx.spark.windows.buffer import Buffer
from onyx.spark.windows.holdings import Holdings
from onyx.spark.windows.plan import SessionRule
from onyx.windows.assigning.assigner import Assigner, OneExtent, Part, Tiling
from onyx.windows.compiled import CompiledWindow
from onyx.windows.triggers.trigger import Trigger
from onyx.windows.units import standard
from onyx.windows.watermarks import NOTHING_SEEN

GAP_MAX = 2**62
"""Longer ones are the same, as coordinates are within 62 bits."""
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class Waiting(Protocol):
    """What waits in one window on one peer."""

    assigner: Assigner
    watching: Trigger | None
    """The trigger that looks at watermarks, if a watermark can pass extents."""

    def came(self, parts: list[Part]) -> None:
        """Rows have come into extents."""
        ...

    def restored(self, part: SpooledPart) -> None:
        """Extents have what a file has."""
        ...

    def passed(self, watermark: Number) -> list[int]:
        """Extents in which something may be due at a watermark; they wait no more."""
        ...

    def expired(self, watermark: Number) -> list[int]:
        """Extents that a watermark has passed by more than the lateness allowed."""
        ...

    def due(self, least: Number | None) -> Number | None:
        """The watermark before which no row with this first coordinate fires
        (`SpooledPart.due`)."""
        ...

    def rule(self, watermark: Number | None) -> SessionRule | None:
        """How sessions are found; None where extents have numbers.

        Args:
            watermark: those that are due at it fire; None: all.
        """
        ...


class NumberedWaiting:
    """What waits of extents that have numbers."""

    def __init__(self, compiled: CompiledWindow, holdings: Holdings, buffer: Buffer) -> None:
        self._holdings = holdings
        self._buffer = buffer
        self.assigner = _assigner(compiled)
        bounded = self.assigner.bounded
        self._lateness = compiled.lateness if bounded else None
        self.watching = _watching(compiled) if bounded else None
        self._passing: Dues[int] = Dues()
        """Extents that have got rows since a watermark made them fire."""
        self._expiring: Dues[int] = Dues()

    def came(self, parts: list[Part]) -> None:
        """Rows have come into extents."""
        for part in parts:
            for number in part.numbers:
                self._await(number, True)

    def restored(self, part: SpooledPart) -> None:
        """Extents have what a file has. They wait as they did."""
        for number in part.extents:
            self._await(number, not part.settled)

    def _await(self, number: int, waits: bool) -> None:
        lower, upper = self.assigner.bounds(number)
        if self.watching is not None and waits:
            self._passing.put(number, self.watching.due(lower, upper, 0))
        if self._lateness is not None:
            self._expiring.put(number, upper + self._lateness + 1)

    def passed(self, watermark: Number) -> list[int]:
        """Extents in which something may be due at a watermark; they wait no more."""
        passed = self._passing.take(watermark)
        return sorted(each for each in passed if self._has(each))

    def _has(self, number: int) -> bool:
        return number in self._holdings or number in self._buffer.extents

    def expired(self, watermark: Number) -> list[int]:
        """Extents that a watermark has passed by more than the lateness allowed."""
        if self._lateness is None:
            return []
        found = list(self._expiring.take(watermark))
        for number in found:
            self._passing.remove(number)
        return found

    def due(self, least: Number | None) -> None:
        """Nothing waits for a watermark of its own."""

    def rule(self, watermark: Number | None) -> None:
        """How sessions are found; None where extents have numbers."""


class SessionWaiting:
    """What waits of sessions, which are all in one extent."""

    assigner: Assigner = OneExtent()

    def __init__(self, compiled: CompiledWindow, holdings: Holdings, buffer: Buffer) -> None:
        assert compiled.window.timeout_gap is not None, "checked when the job is parsed"
        self._gap = standard(compiled.window.timeout_gap)
        self._holdings = holdings
        self._buffer = buffer
        self.watching = _watching(compiled)

    def came(self, parts: list[Part]) -> None:
        """Rows have come into extents. The buffer knows."""

    def restored(self, part: SpooledPart) -> None:
        """Extents have what a file has. The holdings know."""

    def passed(self, watermark: Number) -> list[int]:
        """Extents in which something may be due at a watermark; they wait no more."""
        dues = (self.due(self._buffer.least), self._holdings.due())
        reached = any(due is not None and due <= watermark for due in dues)
        return [OneExtent.NUMBER] if reached else []

    def expired(self, watermark: Number) -> list[int]:
        """Extents that a watermark has passed by more than the lateness allowed. There is no
        lateness."""
        return []

    def due(self, least: Number | None) -> Number | None:
        """The watermark at which a session with this first coordinate may fire. The last coordinate
        of a session only rises; but a session that has a share of it due may have begun at any
        time."""
        if self.watching is None or least is None:
            return None
        if _share(self.watching) is not None:
            return NOTHING_SEEN
        return self.watching.due(least, least, self._gap)

    def rule(self, watermark: Number | None) -> SessionRule:
        """How sessions are found; None where extents have numbers."""
        gap = min(self._gap, GAP_MAX)
        if self.watching is None:
            return SessionRule(gap)
        delay = min(self.watching.due(0, 0, self._gap), GAP_MAX)
        if watermark is not None:
            watermark = max(_INT_MIN, min(watermark, _INT_MAX))
        return SessionRule(gap, int(delay), _share(self.watching), watermark)


def waiting(compiled: CompiledWindow, holdings: Holdings, buffer: Buffer) -> Waiting:
    """What waits in a window, by its type."""
    is_known = WINDOWS[compiled.window.type].known
    made = NumberedWaiting if is_known else SessionWaiting
    return made(compiled, holdings, buffer)


def _watching(compiled: CompiledWindow) -> Trigger | None:
    return next((each for each in compiled.triggers if each.by_watermark), None)


def _share(trigger: Trigger) -> float | None:
    return trigger.declared.watermark_percentage


def _assigner(compiled: CompiledWindow) -> Assigner:
    window = compiled.window
    if window.type == "global":
        return OneExtent()
    assert window.range is not None, "checked when the job is parsed"
    width = standard(window.range)
    slide = width if window.slide is None else standard(window.slide)
    return Tiling(window.min_value, width, slide)
