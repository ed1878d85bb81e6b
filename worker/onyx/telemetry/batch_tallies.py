"""The metrics of every batch: counted without a lock, and made into series at a scrape.

A metric of prometheus_client takes a lock for each change and looks through the buckets one by one;
the seven of a batch cost as much as routing it. Here each peer counts for itself, as the only one
that writes, and the collector adds up those of one task at a scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from threading import Lock

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from onyx.telemetry.catalog import (
    BATCH_SECONDS,
    BATCH_SIZE,
    BUSY_SECONDS,
    SEGMENTS_IN,
    SEGMENTS_OUT,
    Metric,
)
from onyx.telemetry.labels import Stage

_ALL = (SEGMENTS_IN, SEGMENTS_OUT, BUSY_SECONDS, BATCH_SIZE, BATCH_SECONDS)
_SECONDS = BATCH_SECONDS.buckets
TALLIED = frozenset(metric.name for metric in _ALL)
"""Names of the metrics that are counted here."""


class Tally:
    """A histogram: how many values were at most each bound, and their sum."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def add(self, other: Tally) -> None:
        """Add the counts of another tally with the same bounds."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def buckets(self) -> list[tuple[str, float]]:
        """Bounds as Prometheus writes them, each with the values up to it."""
        names = [*(str(bound) for bound in self._bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


class BatchTally:
    """The tallies of one peer on one task, or of several added up."""

    __slots__ = ("apply_s", "read_s", "size", "write_s", "written")

    def __init__(self) -> None:
        self.size = Tally(BATCH_SIZE.buckets)
        self.read_s, self.apply_s, self.write_s = (Tally(BATCH_SECONDS.buckets) for _ in range(3))
        self.written = 0

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
        self.written += other.written

    def stages(self) -> dict[Stage, Tally]:
        """The seconds of each stage."""
        return {Stage.READ: self.read_s, Stage.APPLY: self.apply_s, Stage.WRITE: self.write_s}


class TaskTallies:
    """The tallies of all peers of this process on one task, those that have left included. From any
    thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left = BatchTally()
        self._there: list[BatchTally] = []

    def enter(self) -> BatchTally:
        """For a peer; it is the only one to write to it."""
        tally = BatchTally()
        with self._lock:
            self._there.append(tally)
        return tally

    def leave(self, tally: BatchTally) -> None:
        """The peer writes no more; what it has counted stays."""
        with self._lock:
            self._there.remove(tally)
            self._left.add(tally)

    def total(self) -> BatchTally:
        """The sum over all peers."""
        total = BatchTally()
        with self._lock:
            for tally in (self._left, *self._there):
                total.add(tally)
        return total


class BatchCollector(Collector):
    """The tallies of a process as metrics."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], TaskTallies] = {}

    def task(self, job: str, task: str) -> TaskTallies:
        """The tallies of a task, which are collected from now on."""
        return self._tasks.setdefault((job, task), TaskTallies())

    def remove(self, job: str, task: str) -> None:
        """Collect a task no more."""
        self._tasks.pop((job, task), None)

    def describe(self) -> Iterator[Family]:
        """The metrics without series: a scrape of only some names finds its collectors by it."""
        return BatchCollector().collect()

    def collect(self) -> Iterator[Family]:
        """The five families, as prometheus_client asks for them at a scrape."""
        read, written, busy = (_counter(each) for each in (SEGMENTS_IN, SEGMENTS_OUT, BUSY_SECONDS))
        sizes, seconds = _histogram(BATCH_SIZE), _histogram(BATCH_SECONDS)
        for labels, tallies in tuple(self._tasks.items()):
            total = tallies.total()
            stages = total.stages()
            read.add_metric(labels, total.size.total)
            written.add_metric(labels, total.written)
            busy.add_metric(labels, sum(each.total for each in stages.values()))
            sizes.add_metric(labels, total.size.buckets(), total.size.total)
            for stage, tally in stages.items():
                seconds.add_metric((*labels, stage), tally.buckets(), tally.total)
        yield from (read, written, busy, sizes, seconds)


def _counter(metric: Metric) -> CounterMetricFamily:
    return CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)


def _histogram(metric: Metric) -> HistogramMetricFamily:
    return HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
