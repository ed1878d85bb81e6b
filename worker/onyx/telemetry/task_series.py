"""The series of one task in a Prometheus registry, and the hooks of a virtual peer that feed them.

Children (a metric with its labels bound) are looked up once a task, because the lookup costs more
than the update. Two peers of one process may work on the same task: counters are shared, and of a
gauge each adds only the change of its own value, so that the sum is right and nothing is left when
one leaves.

The metrics of every batch are counted without a lock (`tallies`), and made into series at a scrape:
the collector adds up those of one task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, Exemplar, HistogramMetricFamily
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from onyx.telemetry.catalog import (
    BACKPRESSURED_SECONDS,
    BATCH_SECONDS,
    BATCH_SIZE,
    BUSY_SECONDS,
    COMPLETE_SECONDS,
    METRICS,
    SEGMENTS_IN,
    SEGMENTS_OUT,
    TASK,
    Metric,
)
from onyx.telemetry.interface import EXAMPLE_CHARACTERS_MAX, TaskMetrics, in_example
from onyx.telemetry.tallies import BatchTally, Root, Tally

_COUNTERS = (SEGMENTS_IN, SEGMENTS_OUT, BUSY_SECONDS, BACKPRESSURED_SECONDS)
_ALL = (*_COUNTERS, BATCH_SIZE, BATCH_SECONDS, COMPLETE_SECONDS)
TALLIED = frozenset(metric.name for metric in _ALL)
"""Names of the metrics that are counted here."""


def build(registry: CollectorRegistry, metrics: tuple[Metric, ...] = METRICS) -> dict[str, Any]:
    """Every metric of a table by its name, registered, except those that a `BatchCollector` has."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    return {each.name: _build(each, registry) for each in metrics if each.name not in TALLIED}


def _build(metric: Metric, registry: CollectorRegistry) -> MetricWrapperBase:
    if metric.kind == "counter":
        return Counter(metric.name, metric.meaning, metric.labels, registry=registry)
    if metric.kind == "gauge":
        return Gauge(metric.name, metric.meaning, metric.labels, registry=registry)
    return Histogram(
        metric.name, metric.meaning, metric.labels, registry=registry, buckets=metric.buckets
    )


class TaskSeries:
    """The bound children of one (job, task), shared by the peers of this process on it."""

    def __init__(self, families: dict[str, Any], tallies: TaskTallies, job: str, task: str) -> None:
        """`families` by name of the metric."""
        self.peers = 0
        self.tallies = tallies
        self.children: dict[Metric, Any] = {
            metric: families[metric.name].labels(job, task)
            for metric in METRICS
            if metric.labels == TASK and metric.merge != "least" and metric.name not in TALLIED
        }
        self._families = families
        self._task = (job, task)
        self._values: dict[Metric, dict[object, float]] = {}

    def least(self, metric: Metric, peer: object, value: float | None) -> None:
        """Set the value of a peer; None when it leaves. There is no series before one is known or
        after the last peer has left: 0 would be a value too."""
        values = self._values.setdefault(metric, {})
        if value is None:
            if values.pop(peer, None) is None:
                return
        else:
            values[peer] = value
        if known := tuple(values.values()):
            self._families[metric.name].labels(*self._task).set(min(known))
        else:
            self._families[metric.name].remove(*self._task)


class PrometheusTaskMetrics(TaskMetrics):
    """Metrics with the labels (job, task), of one virtual peer."""

    __slots__ = ("_gauges", "_leave", "_series", "tally")

    def __init__(self, series: TaskSeries, leave: Callable[[BatchTally], None]) -> None:
        """`leave` is called once, with what the peer has counted."""
        self._series = series
        self._leave = leave
        self.tally: BatchTally = series.tallies.enter()
        self._gauges: dict[Metric, float] = {}

    def batch(
        self,
        read: int,
        written: int,
        read_s: float = 0.0,
        apply_s: float = 0.0,
        write_s: float = 0.0,
    ) -> None:
        """A batch is done: segments taken and emitted, and the seconds spent on each stage."""
        self.tally.batch(read, written, read_s, apply_s, write_s)

    def completed(self, seconds: float, segments: int, root: Root | None = None) -> None:
        """The trees of so many segments of an input are processed, so long after they were read;
        `root` is one of these."""
        self.tally.complete.observe(seconds, segments, root)

    def add(self, metric: Metric, amount: float = 1) -> None:
        """Add to a counter."""
        if metric is BACKPRESSURED_SECONDS:
            self.tally.held_s += amount
        else:
            self._series.children[metric].inc(amount)

    def set(self, metric: Metric, value: float) -> None:
        """Set the value of this peer in a gauge; `Metric.merge` says what becomes of it. Costs one
        lookup while the value stays the same."""
        before = self._gauges.get(metric)
        if value == before:
            return
        self._gauges[metric] = value
        if metric.merge == "least":
            self._series.least(metric, self, value)
        else:
            self._series.children[metric].inc(value - (before or 0))

    def observe(self, metric: Metric, value: float) -> None:
        """Add a value to a histogram."""
        self._series.children[metric].observe(value)

    def note(self, metric: Metric, text: Callable[[], str]) -> None:
        """What the first of those is that a counter counts; made only if nothing is known yet.
        Prometheus has no text."""

    def close(self) -> None:
        """The peer leaves the task."""
        for metric, value in self._gauges.items():
            if metric.merge == "least":
                self._series.least(metric, self, None)
            elif metric.merge == "sum":
                self._series.children[metric].inc(-value)
        self._gauges.clear()
        self._leave(self.tally)
        self._leave = _nothing


def _nothing(tally: BatchTally) -> None:
    """A peer that has been closed leaves only once."""


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
        """Their families, as prometheus_client asks for them at a scrape."""
        read, written, busy, held = map(_counter, _COUNTERS)
        sizes, seconds = _histogram(BATCH_SIZE), _histogram(BATCH_SECONDS)
        complete = _histogram(COMPLETE_SECONDS)
        for labels, tallies in tuple(self._tasks.items()):
            total = tallies.total()
            stages = total.stages()
            read.add_metric(labels, total.size.total)
            written.add_metric(labels, total.written)
            busy.add_metric(labels, total.busy_s)
            held.add_metric(labels, total.held_s)
            sizes.add_metric(labels, total.size.buckets(), total.size.total)
            for stage, tally in stages.items():
                seconds.add_metric((*labels, stage), tally.buckets(), tally.total)
            if any(total.complete.counts):  # only of inputs
                complete.add_metric(labels, _with_examples(total.complete), total.complete.total)
        yield from (read, written, busy, held, sizes, seconds, complete)


def _counter(metric: Metric) -> CounterMetricFamily:
    return CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)


def _histogram(metric: Metric) -> HistogramMetricFamily:
    return HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)


def _with_examples(tally: Tally) -> list[Any]:
    """The buckets of a tally, with the root of a tree in each that has one."""
    return [
        bucket if example is None else (*bucket, _exemplar(*example))
        for bucket, example in zip(tally.buckets(), tally.examples, strict=True)
    ]


def _exemplar(value: float, root: Root) -> Exemplar:
    partition, position = root[0], str(root[1])
    room = EXAMPLE_CHARACTERS_MAX - len("partition" + "position" + position)
    return Exemplar({"partition": in_example(partition, room), "position": position}, value)
