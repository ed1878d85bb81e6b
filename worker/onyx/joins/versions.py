"""Rows that are versions of what has their key, each valid from its time until the next.

All versions lie in one sorted array of (number of the key, rank of the time), so that a batch is
looked up by one binary search. Times are compared exactly (`axis`).
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from onyx.errors import UserError
from onyx.flow.arrays import Indices, Mask
from onyx.joins.axis import Axis, Moments
from onyx.joins.keys import NONE, kind_of
from onyx.keystate.extents import Number

_US_PER_MS, _MS_PER_DAY = 1_000, 86_400_000
_TIMES = ("null", "number", "date", "timestamp", "time", "duration")


class Versions:
    """Versions of rows."""

    def __init__(self, numbers: Indices, times: pa.Array) -> None:
        """
        Args:
            numbers: the number of the key of each row.
            times: from when on the row is valid.

        Raises:
            UserError: the values have no order in time.
        """
        self._kind = _time_kind(times)
        self._axis = Axis(times)
        moments, self.there = self._axis.moments
        """Whether each row has a time."""
        self._moments = np.unique(moments)
        ranks = np.searchsorted(self._moments, moments) + 1
        places = self._places(numbers, ranks)
        # Of the same key and time the last row is found: the sort is stable.
        self._order = np.argsort(places, kind="stable")
        self._sorted = places[self._order]
        self._owners = numbers[self._order]

    def find(self, numbers: Indices, times: pa.Array) -> Indices:
        """For each number the row that is valid at the time; -1: there is none yet, or no time.

        Raises:
            UserError: the times are of another kind.
        """
        kind = _time_kind(times)
        if "null" not in (kind, self._kind) and kind != self._kind:
            raise UserError(
                f"the time is of kind {kind} and the versions have kind {self._kind}: make them "
                "alike where one of them is read"
            )
        moments, there = self._axis.below(times)
        rows = np.flatnonzero((numbers != NONE) & there)
        ranks = np.searchsorted(self._moments, moments[rows], side="right")
        places = self._places(numbers[rows], ranks)
        # In order, because neighbours in a large array are found twice as fast.
        ordered = np.argsort(places)
        before = np.empty(len(places), np.intp)
        before[ordered] = np.searchsorted(self._sorted, places[ordered], side="right") - 1
        found = np.full(len(numbers), NONE, np.intp)
        if len(self._sorted):
            first = self._places(numbers[rows], np.intp(0))
            valid = (before >= 0) & (self._sorted[before] >= first)
            found[rows[valid]] = self._order[before[valid]]
        return found

    def newest(self, many: int) -> Indices:
        """The newest row of each number."""
        found = np.empty(many, np.intp)
        found[self._owners] = self._order  # of one number the last assignment stays
        return found

    def valid(self) -> tuple[Indices, Validity]:
        """The rows that are found at some time, in no order, and when each is."""
        kept = np.flatnonzero(np.diff(self._sorted, append=NONE))
        firsts = self._moments[self._sorted[kept] % (len(self._moments) + 1) - 1]
        newest = np.diff(self._owners[kept], append=NONE) != 0
        return self._order[kept], Validity(self._kind, firsts, np.append(firsts[1:], 0), newest)

    def _places(self, numbers: Indices, ranks: Indices | np.intp) -> Indices:
        return numbers * (len(self._moments) + 1) + ranks


class Validity(msgspec.Struct, frozen=True):
    """When versions are valid: each from its time on, until before the next of its key."""

    kind: str
    """What the times are (`keys.kind_of`)."""
    firsts: Moments
    nexts: Moments
    """The times of the next ones."""
    newest: Mask
    """Which have no next one."""

    def take(self, chosen: Indices) -> Validity:
        """Some of them."""
        return Validity(self.kind, self.firsts[chosen], self.nexts[chosen], self.newest[chosen])

    def bounds(self, index: int) -> tuple[Number, Number]:
        """The first and the last moment of one: numbers as they are, times in milliseconds since
        the epoch."""
        lower = self._moment(self.firsts[index])
        if self.newest[index]:
            return lower, math.inf
        following = self._moment(self.nexts[index])
        if self.kind == "number" and isinstance(following, float):
            return lower, math.nextafter(following, -math.inf)
        return lower, following - (1 if isinstance(following, int) else 1 / _US_PER_MS)

    def _moment(self, moment: Any) -> Number:
        if self.kind == "number":
            return int(moment) if moment == moment // 1 else float(moment)
        time = int(moment)
        if self.kind == "date":
            return time * _MS_PER_DAY
        return time / _US_PER_MS if time % _US_PER_MS else time // _US_PER_MS


def _time_kind(times: pa.Array) -> str:
    kind = kind_of(times.type)
    if kind not in _TIMES:
        raise UserError(f"values of kind {kind} are no times: use numbers or times")
    return kind
