"""The ledger of one range of positions: of runs as long as whole runs come, else of an array.

Of a run of roots that is acked with the run of its ids only the two ends are kept. Every root of
one partition has the same distance to its id, so one distance is kept for all. The ends are a set,
and so XOR is the symmetric difference of two sets: a run that comes the second time takes its ends
out, half of one leaves the other half, and two that meet become one. The first thing that is no
such run turns the range into an array, until nothing of it is open.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onyx.base.runs import Numbers, Run, array_of
from onyx.ledger.lineage import RANGE_POSITIONS, RANGE_SHIFT, U64, Indices

OFFSET_MASK = RANGE_POSITIONS - 1
ENDS_MAX = 16
"""The ends of the runs of a range; with more it becomes an array."""
_WORD = (1 << 64) - 1

Span = tuple[int, int]
"""Offsets of a range, from the first to before the second."""


class Range:
    """The ledger of one range; offset `i` belongs to its i-th position."""

    __slots__ = ("_acked", "_dense", "_distance", "_ends", "_spans", "_values", "open", "touched_s")

    def __init__(self) -> None:
        self._ends: set[int] = set()
        """The offsets at which runs that are open begin or end."""
        self._distance = 0
        """From a root to its id, in these runs."""
        self._spans: list[Span] = []
        """What runs have come over since the last `settle`."""
        self._dense = False
        """Whether the array counts; until then it is all zeros."""
        self._values: U64 | None = None
        self._acked = np.zeros(0, dtype=np.bool_)
        """Positions of which something has come since the last `settle`."""
        self.open = 0
        """How many values are not zero, as of the last `settle`."""
        self.touched_s = 0.0

    def add(self, roots: Numbers, values: Numbers) -> None:
        """XOR values in; `roots` are strictly increasing and all of this range."""
        first, last = int(roots[0]) & OFFSET_MASK, int(roots[-1]) & OFFSET_MASK
        if isinstance(roots, Run) and isinstance(values, Run) and not self._dense:
            distance = (values.first - roots.first) & _WORD
            if self._toggle(first, last + 1, distance):
                return
        array = self._array(int(roots[0]) & ~OFFSET_MASK)
        where: slice | Indices
        if isinstance(roots, Run) or last - first + 1 == len(roots):
            where = slice(first, last + 1)
        else:
            where = (roots & np.uint64(OFFSET_MASK)).view(np.int64)
        array[where] ^= array_of(values)
        self._acked[where] = True

    def settle(self, key: int) -> list[Numbers]:
        """The roots of which something has come since the last call and that are at zero now, in
        order, by the key of the range."""
        base = key << RANGE_SHIFT
        if not self._dense:
            runs = list(self._runs())
            self.open = sum([end - first for first, end in runs])
            spans, self._spans = self._spans, []
            return [Run(base + first, end - first) for first, end in _without(spans, runs)]
        zero = self._array(base) == 0
        self.open = RANGE_POSITIONS - int(np.count_nonzero(zero))
        done: Indices = np.logical_and(zero, self._acked, out=zero).nonzero()[0]
        self._acked.fill(False)
        self._dense = self.open > 0
        if not len(done):
            return []
        first, count = int(done[0]), len(done)
        if int(done[-1]) - first + 1 == count:
            return [Run(base + first, count)]
        return [done.view(np.uint64) + np.uint64(base)]

    def values(self, key: int) -> tuple[Indices, U64]:
        """The offsets of what is open, in order, and the values there."""
        values = self._array(key << RANGE_SHIFT)
        offsets = np.flatnonzero(values)
        return offsets, values[offsets]

    def put(self, offsets: Indices, values: U64) -> None:
        """Let these be open, in a range in which nothing is."""
        self._array(0)[offsets] = values

    @property
    def has_array(self) -> bool:
        """Whether it has an array, to be used again."""
        return self._values is not None

    def _toggle(self, first: int, end: int, distance: int) -> bool:
        """XOR a run in; False if it does not go with those that are here."""
        if self._ends and distance != self._distance:
            return False
        ends = self._ends ^ {first, end}
        if len(ends) > ENDS_MAX or len(self._spans) >= ENDS_MAX:
            return False
        self._ends, self._distance = ends, distance
        self._spans.append((first, end))
        return True

    def _runs(self) -> Iterator[Span]:
        ends = iter(sorted(self._ends))
        return zip(ends, ends, strict=True)

    def _array(self, base: int) -> U64:
        """The values as an array from now on.

        Args:
            base: the root at offset 0.
        """
        if self._values is None:
            self._values = np.zeros(RANGE_POSITIONS, dtype=np.uint64)
            self._acked = np.zeros(RANGE_POSITIONS, dtype=np.bool_)
        if not self._dense:
            self._dense = True
            for first, end in self._runs():
                id = (base + first + self._distance) & _WORD
                self._values[first:end] = Run(id, end - first).array()
            for first, end in self._spans:
                self._acked[first:end] = True
            self._ends, self._spans = set(), []
        return self._values


def _without(spans: list[Span], runs: list[Span]) -> list[Span]:
    """What is in one of the spans and in none of the runs, which are increasing, in order."""
    if len(spans) == 1 and not runs:
        return spans
    found: list[Span] = []
    at = 0
    for first, end in sorted(spans):
        first = max(first, at)
        for open_first, open_end in runs:
            if first < open_first < end:
                found.append((first, open_first))
            if open_first < end and open_end > first:
                first = open_end
        if first < end:
            found.append((first, end))
        at = max(at, first, end)
    return found
