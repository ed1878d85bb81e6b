"""A queue of segments in dicts and in columns, in one order.

Runs are kept as they came, and cut where somebody reads, so columns stay columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from onyx.flow.batch import Segments, part_of

Run = Segments
"""Segments that came together."""
_MERGED_MAX = 1_024
"""Dicts of short runs that become one run; more would make it slow to drop the first ones."""


class SegmentRuns:
    """The oldest segment has index 0."""

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, run: Run) -> None:
        """Add the newest segments."""
        if not len(run):
            return
        self._count += len(run)
        last = self._runs[-1] if self._runs else None
        if isinstance(run, list) and isinstance(last, list) and len(last) < _MERGED_MAX:
            last.extend(run)
        else:
            self._runs.append(run[:] if isinstance(run, list) else run)

    def drop(self, count: int) -> None:
        """Remove the oldest segments."""
        assert count <= self._count, "nobody drops what is not there"
        self._count -= count
        while count:
            first = self._runs[0]
            if len(first) > count:
                self._runs[0] = part_of(first, count, len(first))
                return
            count -= len(first)
            self._runs.popleft()

    def between(self, first: int, count: int) -> list[Run]:
        """At most `count` segments from an index on."""
        return list(self.cut(first, first + count))

    def clear(self) -> None:
        """Remove all."""
        self._runs.clear()
        self._count = 0

    def cut(self, first: int, last: int) -> Iterator[Run]:
        """The segments from `first` to before `last`, run by run."""
        begin = 0
        for run in self._runs:
            end = begin + len(run)
            if begin >= last:
                return
            if max(begin, first) < min(end, last):
                yield part_of(run, max(0, first - begin), min(last, end) - begin)
            begin = end
