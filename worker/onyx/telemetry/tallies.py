"""What each batch adds to: counts and histograms of one peer on one task, without a lock.

A metric of prometheus_client takes a lock for each change and looks through the buckets one by one;
the seven of a batch cost as much as routing it. Here each peer counts for itself, as the only one
that writes. Whoever wants to know adds up: the series of a task at a scrape (`task_series`), and
the measures of a worker (`peer.work.measuring`). So what is exported and what is shown is the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from onyx.reports.measures import Durations
from onyx.telemetry.catalog import BATCH_SECONDS, BATCH_SIZE, COMPLETE_SECONDS
from onyx.telemetry.labels import Stage

_SECONDS = BATCH_SECONDS.buckets
Root = tuple[str, int]
"""The segment of an input from which a tree comes: its partition and its position there."""


class Tally:
    """A histogram: how many values were at most each bound, and their sum."""

    __slots__ = ("_bounds", "counts", "examples", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.examples: list[tuple[float, Root] | None] = [None] * len(self.counts)
        """The last value up to each bound that came with a root, and the root."""
        self.total = 0.0

    def observe(self, value: float, times: int = 1, root: Root | None = None) -> None:
        """Count a value, so many times; `root` is an example of what it was measured of."""
        index = bisect_left(self._bounds, value)
        self.counts[index] += times
        self.total += value * times
        if root is not None:
            self.examples[index] = value, root

    def add(self, other: Tally) -> None:
        """Add the counts of another tally with the same bounds."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        both = zip(self.examples, other.examples, strict=True)
        self.examples = [its or mine for mine, its in both]
        self.total += other.total

    def durations(self) -> Durations:
        """The counts as they are now, of seconds."""
        return Durations(tuple(self._bounds), tuple(self.counts), self.total)

    def buckets(self) -> list[tuple[str, float]]:
        """Bounds as Prometheus writes them, each with the values up to it."""
        names = [*(str(bound) for bound in self._bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


class BatchTally:
    """The tallies of one peer on one task, or of several added up."""

    __slots__ = ("apply_s", "complete", "held_s", "read_s", "size", "write_s", "written")

    def __init__(self) -> None:
        self.size = Tally(BATCH_SIZE.buckets)
        self.read_s, self.apply_s, self.write_s = (Tally(BATCH_SECONDS.buckets) for _ in range(3))
        self.complete = Tally(COMPLETE_SECONDS.buckets)
        """Time from reading a segment of an input until its tree is complete."""
        self.written = 0
        self.held_s = 0.0
        """Spent waiting for room downstream."""

    def batch(self, read: int, written: int, read_s: float, apply_s: float, write_s: float) -> None:
        """A batch is done: segments taken and emitted, and the seconds spent on each stage."""
        self.written += written
        if read:
            self.size.observe(read)
        for tally, seconds in (
            (self.read_s, read_s),
            (self.apply_s, apply_s),
            (self.write_s, write_s),
        ):
            if seconds:  # as `observe` does, whose call takes longer than the rest
                tally.counts[bisect_left(_SECONDS, seconds)] += 1
                tally.total += seconds

    def add(self, other: BatchTally) -> None:
        """Add the counts of another peer."""
        self.size.add(other.size)
        self.read_s.add(other.read_s)
        self.apply_s.add(other.apply_s)
        self.write_s.add(other.write_s)
        self.complete.add(other.complete)
        self.written += other.written
        self.held_s += other.held_s

    @property
    def busy_s(self) -> float:
        """Spent on batches."""
        return self.read_s.total + self.apply_s.total + self.write_s.total

    def stages(self) -> dict[Stage, Tally]:
        """The seconds of each stage."""
        return {Stage.READ: self.read_s, Stage.APPLY: self.apply_s, Stage.WRITE: self.write_s}
