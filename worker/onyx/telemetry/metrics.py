"""The metrics of a process in a Prometheus registry of its own.

The series of tasks that have ended stay for the next scrape, up to a limit: a worker must not grow
when it runs for a year and each of its jobs is named by date.
"""

from __future__ import annotations

import platform
from collections import OrderedDict
from collections.abc import Collection, Mapping
from functools import partial
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from onyx.telemetry.catalog import BUILD_INFO, METRICS, TASK, Metric
from onyx.telemetry.interface import NO_EXAMPLE, GroupMetrics, TaskMetrics
from onyx.telemetry.labels import CLOSED_LABELS
from onyx.telemetry.tallies import BatchTally
from onyx.telemetry.task_series import (
    TALLIED,
    BatchCollector,
    PrometheusTaskMetrics,
    TaskSeries,
    build,
)

RETAINED_TASKS_MAX = 500
"""(job, task) pairs whose series are kept; beyond it, those that ended first are removed."""
OTHER = "other"
"""Value of `fn` for an unknown command: names in the log are not ours to trust."""


class PrometheusGroupMetrics(GroupMetrics):
    """Metrics of a worker process.

    Arguments:
        commands: names of the log commands that exist; others count as `other`.
        version: version of Onyx, for `onyx_build_info`.
        retained_tasks_max: series of so many (job, task) pairs are kept.
    """

    __slots__ = (
        "_batches",
        "_children",
        "_commands",
        "_families",
        "_lock",
        "_replaced",
        "_retained_max",
        "_series",
        "registry",
    )

    def __init__(
        self,
        commands: Collection[str] = (),
        version: str = "",
        retained_tasks_max: int = RETAINED_TASKS_MAX,
    ) -> None:
        self.registry = CollectorRegistry()
        self._families = build(self.registry)
        self._batches = BatchCollector()
        self.registry.register(self._batches)
        self._commands = frozenset(commands)
        self._children: dict[tuple[Metric, tuple[str, ...]], Any] = {}
        self._lock = Lock()
        self._series: OrderedDict[tuple[str, str], TaskSeries] = OrderedDict()
        self._retained_max = retained_tasks_max
        self._replaced: dict[Metric, frozenset[tuple[str, ...]]] = {}
        self.set(BUILD_INFO, 1, version, platform.python_version())
        for metric in METRICS:  # else nobody sees how the first one raises a counter
            if metric.kind == "counter" and len(metric.labels) == 1:
                for value in sorted(CLOSED_LABELS.get(metric.labels[0], ())):
                    self.add(metric, 0, value)

    def task(self, job: str, task: str) -> TaskMetrics:
        """For one virtual peer on one task; `job` and `task` are names."""
        key = (job, task)
        with self._lock:
            series = self._series.get(key)
            if series is None:
                self._make_room()
                series = self._series[key] = TaskSeries(
                    self._families, self._batches.task(job, task), job, task
                )
            series.peers += 1
            self._series.move_to_end(key)
        return PrometheusTaskMetrics(series, partial(self._left, series))

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        """Add to a counter."""
        self._child(metric, labels).inc(amount)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._child(metric, labels).set(value)

    def observe(
        self, metric: Metric, value: float, *labels: str, example: Mapping[str, str] = NO_EXAMPLE
    ) -> None:
        """Add a value to a histogram; `example` says of what it is, in `EXAMPLE_CHARACTERS_MAX`."""
        self._child(metric, labels).observe(value, example)

    def remove(self, metric: Metric, *labels: str) -> None:
        """End a series that was set."""
        self._children.pop((metric, labels), None)
        self._families[metric.name].remove(*labels)

    def replace(self, metric: Metric, series: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge to exactly these series, by their labels: all others of it end."""
        for labels in self._replaced.get(metric, frozenset()) - series.keys():
            self._families[metric.name].remove(*labels)
        for labels, value in series.items():
            self._families[metric.name].labels(*labels).set(value)
        self._replaced[metric] = frozenset(series)

    def text(self) -> str:
        """All of them, as Prometheus has them."""
        return generate_latest(self.registry).decode()

    def _child(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        """The series with these labels, looked up once: that costs more than the update."""
        child = self._children.get((metric, labels))
        if child is None:
            family = self._families[metric.name]
            if metric.labels == ("fn",) and labels[0] not in self._commands:
                return family.labels(OTHER)
            child = family.labels(*labels) if labels else family
            self._children[metric, labels] = child
        return child

    def _left(self, series: TaskSeries, tally: BatchTally) -> None:
        series.tallies.leave(tally)
        with self._lock:
            series.peers -= 1

    def _make_room(self) -> None:
        ended = [key for key, series in self._series.items() if not series.peers]
        for key in ended[: max(0, len(self._series) + 1 - self._retained_max)]:
            del self._series[key]
            self._batches.remove(*key)
            for metric in METRICS:
                if metric.labels[:2] == TASK and metric.name not in TALLIED:
                    self._remove(metric, key)

    def _remove(self, metric: Metric, key: tuple[str, str]) -> None:
        more = [sorted(CLOSED_LABELS[label]) for label in metric.labels[2:]]
        for values in more[0] if more else [None]:
            labels = key if values is None else (*key, values)
            self._families[metric.name].remove(*labels)
