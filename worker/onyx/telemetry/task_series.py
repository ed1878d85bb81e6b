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
from onyx.telemetry.catalog import METRICS, Metric
from onyx.telemetry.interface import TaskMetrics


def build(registry: CollectorRegistry, metrics: tuple[Metric, ...] = METRICS) -> dict[str, Any]:
    """Every metric of a table, registered, but for those that a `BatchCollector` tells."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    told_here = (metric for metric in metrics if metric.name not in TALLIED)
    return {metric.name: _build(metric, registry) for metric in told_here}


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

    def __init__(self, metrics: dict[str, Any], tallies: TaskTallies, job: str, task: str) -> None:
        self.peers = 0
        self.tallies = tallies

        def bound(name: str, *more: str) -> Any:
            return metrics[name].labels(job, task, *more)

        self.backpressured = bound("onyx_task_backpressured_seconds_total")
        self.retries = bound("onyx_task_retries_total")
        self.errors = bound("onyx_task_errors_total")
        self.dead_letters = bound("onyx_task_dead_letters_total")
        self.queue = bound("onyx_edge_queue_segments")
        self.capacity = bound("onyx_edge_queue_capacity_segments")
        self.pending = bound("onyx_source_pending_segments")
        self.offset = bound("onyx_source_offset")
        self.late = bound("onyx_window_late_segments_total")
        self.recovery_read = bound("onyx_state_recovery_read_bytes")
        self.recovery_size = bound("onyx_state_recovery_size_bytes")
        self._watermark = metrics["onyx_task_watermark_seconds"]
        self._task = (job, task)
        self._watermarks_s: dict[object, float] = {}
        self.spark_s = bound("onyx_spark_stage_seconds")
        self.spark_failures = bound("onyx_spark_stage_failures_total")

    def watermark(self, peer: object, time_s: float | None) -> None:
        """The least of those of the peers. There is no series before one is known or after the
        last peer has left: 0 would be an event time too."""
        if time_s is not None:
            self._watermarks_s[peer] = time_s
        elif self._watermarks_s.pop(peer, None) is None:
            return
        known = tuple(self._watermarks_s.values())
        if known:
            self._watermark.labels(*self._task).set(min(known))
        else:
            self._watermark.remove(*self._task)


class PrometheusTaskMetrics(TaskMetrics):
    """See `TaskMetrics`."""

    __slots__ = ("_gauges", "_leave", "_series", "_tally", "_watermark_ms")

    def __init__(self, series: TaskSeries, leave: Callable[[BatchTally], None]) -> None:
        self._series = series
        self._leave = leave
        self._tally = series.tallies.enter()
        self._gauges: dict[str, int] = {}
        self._watermark_ms: int | None = None

    def batch(
        self,
        read: int,
        written: int,
        read_s: float = 0.0,
        apply_s: float = 0.0,
        write_s: float = 0.0,
    ) -> None:
        self._tally.batch(read, written, read_s, apply_s, write_s)

    def backpressured(self, seconds: float) -> None:
        self._series.backpressured.inc(seconds)

    def retried(self, segments: int) -> None:
        self._series.retries.inc(segments)

    def failed(self, segments: int = 1) -> None:
        self._series.errors.inc(segments)

    def dead_letters(self, segments: int) -> None:
        self._series.dead_letters.inc(segments)

    def queue(self, segments: int, capacity: int) -> None:
        self._set("queue", segments)
        self._set("capacity", capacity)

    def source(self, pending: int, offset: int) -> None:
        self._set("pending", pending)
        self._set("offset", offset)

    def late(self, segments: int) -> None:
        self._series.late.inc(segments)

    def recovering(self, done_bytes: int, size_bytes: int) -> None:
        self._set("recovery_read", done_bytes)
        self._set("recovery_size", size_bytes)

    def watermark(self, time_ms: int) -> None:
        if time_ms != self._watermark_ms:
            self._watermark_ms = time_ms
            self._series.watermark(self, time_ms / 1000)

    def spark_stage(self, seconds: float, *, ok: bool) -> None:
        if ok:
            self._series.spark_s.observe(seconds)
        else:
            self._series.spark_failures.inc()

    def close(self) -> None:
        for name in tuple(self._gauges):
            if name != "offset":  # what was completed here stays so
                self._set(name, 0)
        self._series.watermark(self, None)
        self._leave(self._tally)
        self._leave = _nothing

    def _set(self, name: str, value: int) -> None:
        change = value - self._gauges.get(name, 0)
        if change:
            getattr(self._series, name).inc(change)
            self._gauges[name] = value


def _nothing(tally: BatchTally) -> None:
    """A peer that has been closed leaves only once."""
