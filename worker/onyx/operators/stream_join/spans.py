"""Which times meet, and what a watermark says about rows: that they are late, that no partner of
theirs can come any more, or that nobody will ask for them.

A join is of all rows that are not late. So what a watermark lets go is decided by times alone, the
same on each replay, and nothing has to be noted of a row: not even that it has met another one.

All of it is arithmetic on arrays of microseconds, which is as exact as times are. Watermarks are
one for each row, because key groups may differ in theirs.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
Side = Literal[0, 1]
LEFT: Side = 0
RIGHT: Side = 1
US_A_MS = 1_000
"""Amounts in a job, and watermarks outside of a join, are in milliseconds."""
TIME_MAX = 2**61
"""Times are nearer to 1970 than this, so that no sum of three is too large."""
NO_WATERMARK, END = -(2**62), 2**62 - 1
"""Before each time, and behind each."""


class Reach(NamedTuple):
    """The times of the other side that rows meet."""

    first: Times
    last: Times


class Spans(Protocol):
    """How near in time two rows meet."""

    def reach(self, side: Side, times: Times) -> Reach:
        """What rows of a side meet."""
        ...

    def late_before(self, watermarks: Times) -> Times:
        """Rows of a lower time are late."""
        ...

    def alone_before(self, side: Side, watermarks: Times) -> Times:
        """Rows of a lower time meet no row that is still to come."""
        ...

    def gone_before(self, side: Side, watermarks: Times) -> Times:
        """Rows of a lower time are of no use any more: not to those that are still to come, and not
        to those of the other side of which it is to be said that they have met none."""
        ...

    def made_from(self, watermark: int) -> int:
        """No row of a lower time is in what is still to be made, when all has been made that the
        watermark brings. For `Latest` that is said of left rows."""
        ...


class Interval(msgspec.Struct, frozen=True):
    """The right row is at most so much earlier or later than the left one."""

    before: int
    after: int
    outer: tuple[bool, bool]
    """For each side, whether its rows are emitted that have met none."""

    def reach(self, side: Side, times: Times) -> Reach:
        """The times around theirs."""
        return Reach(times - self._back(side), times + self._on(side))

    def late_before(self, watermarks: Times) -> Times:
        """What is behind the watermark."""
        return watermarks

    def alone_before(self, side: Side, watermarks: Times) -> Times:
        """What reaches only times behind the watermark."""
        return watermarks - self._on(side)

    def gone_before(self, side: Side, watermarks: Times) -> Times:
        """A row of the other side is looked at once more when it is alone."""
        alone = self.alone_before(side, watermarks)
        return alone - self._back(side) if self.outer[1 - side] else alone

    def made_from(self, watermark: int) -> int:
        """A row that comes may meet one that has waited for it, or one may be alone."""
        return watermark - max(self.before, self.after)

    def _back(self, side: Side) -> int:
        return self.after if side else self.before

    def _on(self, side: Side) -> int:
        return self.before if side else self.after


class SameExtent(msgspec.Struct, frozen=True):
    """Both rows are in the same extent of a fixed length."""

    width: int

    def reach(self, side: Side, times: Times) -> Reach:
        """The extent of each."""
        first = self._first(times)
        return Reach(first, first + self.width - 1)

    def late_before(self, watermarks: Times) -> Times:
        """What is in an extent that is over."""
        return self._first(watermarks)

    def alone_before(self, side: Side, watermarks: Times) -> Times:
        """An extent is over as a whole."""
        return self._first(watermarks)

    def gone_before(self, side: Side, watermarks: Times) -> Times:
        """With its extent."""
        return self._first(watermarks)

    def made_from(self, watermark: int) -> int:
        """The beginning of the extent."""
        return watermark // self.width * self.width

    def _first(self, times: Times) -> Times:
        found: Times = times // self.width * self.width
        return found


class Latest(msgspec.Struct, frozen=True):
    """The left row meets the latest right one that is not later, and not older than that."""

    age_max: int | None

    def reach(self, side: Side, times: Times) -> Reach:
        """What is not later than a left row."""
        assert side == LEFT, "a right row waits until it is asked for"
        first = np.full_like(times, NO_WATERMARK) if self.age_max is None else times - self.age_max
        return Reach(first, times)

    def late_before(self, watermarks: Times) -> Times:
        """What is behind the watermark."""
        return watermarks

    def alone_before(self, side: Side, watermarks: Times) -> Times:
        """A left row is asked for when all right ones have come that are not later."""
        return watermarks

    def gone_before(self, side: Side, watermarks: Times) -> Times:
        """A right row of any age is of use until a later one of its key takes its place."""
        if side == LEFT:
            return watermarks
        if self.age_max is None:
            return np.full_like(watermarks, NO_WATERMARK)
        return watermarks - self.age_max

    def made_from(self, watermark: int) -> int:
        """A left row is emitted when the watermark passes it."""
        return watermark
