"""When the segments in flight of one partition were read, from which their latency follows.

A batch is read at one moment, so a moment is kept for each batch and none for a segment. What is
read within a millisecond counts as one batch: a source that gives one segment at a time costs no
more. Trees become complete in any order; for those that complete together only the batches are
looked at among which they are.

Rejected: the ring of the pending window, which knows when a segment was sent last, to a second: it
starts anew with each attempt, and whoever waits has waited since the first one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from onyx.base.runs import Numbers, array_of, as_run
from onyx.ledger.lineage import POSITIONS_MAX, positions_of

GRAIN_S = 0.001
DROPPED_AT_ONCE = 64


class ReadTimes:
    """The moments of one partition. Not thread-safe but for `oldest_s`."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        """The position behind each batch, in order."""
        self._read_s: list[float] = []

    def read(self, end: int, now_s: float, frontier: int) -> None:
        """All up to a position has been read; what is below the frontier is complete."""
        ends, read_s = self._ends, self._read_s
        if ends and now_s - read_s[-1] < GRAIN_S:
            ends[-1] = end
            return
        ends.append(end)
        read_s.append(now_s)
        done = bisect_right(ends, frontier)
        if done >= DROPPED_AT_ONCE:
            # In this order: whoever looks from another thread finds a later moment, and no end of
            # the list.
            self._ends, self._read_s = ends[done:], read_s[done:]

    def of(self, roots: Numbers) -> Iterator[tuple[float, int]]:
        """The moments at which segments were read, each with how many of them: of increasing roots
        of the partition. What was read before it was taken over is not known here."""
        if not len(roots) or not self._ends:
            return
        run = as_run(roots)
        if run is not None:
            yield from self._of_run(run.first & (POSITIONS_MAX - 1), len(run))
            return
        positions = positions_of(array_of(roots))
        first = bisect_right(self._ends, int(positions[0]))
        last = bisect_right(self._ends, int(positions[-1]))
        ends = np.array(self._ends[first : last + 1], dtype=np.uint64)
        before = 0
        for index, upto in enumerate(np.searchsorted(positions, ends).tolist(), first):
            if upto > before:
                yield self._read_s[index], upto - before
            before = upto

    def _of_run(self, first: int, count: int) -> Iterator[tuple[float, int]]:
        end = first + count
        for index in range(bisect_right(self._ends, first), len(self._ends)):
            upto = min(end, self._ends[index])
            yield self._read_s[index], upto - first
            first = upto
            if first == end:
                return

    def oldest_s(self, frontier: int, now_s: float) -> float | None:
        """Since when the segment at a position was read; None: it has not been."""
        ends, read_s = self._ends, self._read_s
        index = bisect_right(ends, frontier)
        return now_s - read_s[index] if index < min(len(ends), len(read_s)) else None
