"""The series of one task in a Prometheus registry, and the hooks of a virtual peer that feed them.

Children (a metric with its labels bound) are looked up once a task, because the lookup costs more
than the update. Two peers of one process may work on the same task: counters are shared, and of a
gauge each adds only the change of its own value, so that the sum is right and nothing is left when
one leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.metrics import MetricWrapperBase

from onyx.telemetry.batch_tallies import TALLIED, BatchTally, TaskTallies
from onyx.telemetry.catalog import METRICS, TASK, Metric
from onyx.telemetry.interface import TaskMetrics


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

    __slots__ = ("_gauges", "_leave", "_series", "_tally")

    def __init__(self, series: TaskSeries, leave: Callable[[BatchTally], None]) -> None:
        """`leave` is called once, with what the peer has counted."""
        self._series = series
        self._leave = leave
        self._tally = series.tallies.enter()
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
        self._tally.batch(read, written, read_s, apply_s, write_s)

    def add(self, metric: Metric, amount: float = 1) -> None:
        """Add to a counter."""
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
        self._leave(self._tally)
        self._leave = _nothing


def _nothing(tally: BatchTally) -> None:
    """A peer that has been closed leaves only once."""
