"""The metrics of a process in a Prometheus registry of its own.

The series of tasks that have ended stay, for the next scrape, up to a limit: a worker that runs for
a year under jobs named by date must not grow.
"""

from __future__ import annotations

import platform
from collections import OrderedDict
from collections.abc import Collection, Sequence
from functools import partial
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry

from onyx.stalls import Reason
from onyx.telemetry.batch_tallies import TALLIED, BatchCollector, BatchTally
from onyx.telemetry.catalog import (
    CLOSED_LABELS,
    METRICS,
    TASK,
    Direction,
    Metric,
    PeerState,
    Refusal,
)
from onyx.telemetry.interface import GroupMetrics, TaskMetrics
from onyx.telemetry.task_series import PrometheusTaskMetrics, TaskSeries, build

RETAINED_TASKS_MAX = 500
"""(job, task) pairs whose series are kept; beyond it, those that ended first go."""
OTHER = "other"
"""Value of `fn` for a command that is not known."""


class PrometheusGroupMetrics(GroupMetrics):
    """See `GroupMetrics`.

    Arguments:
        commands: names of the log commands that exist; others count as `other`.
        version: version of Onyx, for `onyx_build_info`.
        retained_tasks_max: series of so many (job, task) pairs are kept.
    """

    __slots__ = (
        "_batches",
        "_commands",
        "_fns",
        "_lock",
        "_metrics",
        "_retained_max",
        "_series",
        "_stalled",
        "registry",
    )

    def __init__(
        self,
        commands: Collection[str] = (),
        version: str = "",
        retained_tasks_max: int = RETAINED_TASKS_MAX,
    ) -> None:
        self.registry = CollectorRegistry()
        self._metrics = build(self.registry)
        self._batches = BatchCollector()
        self.registry.register(self._batches)
        self._commands = frozenset(commands)
        self._fns: dict[str, tuple[Any, Any]] = {}
        self._lock = Lock()
        self._series: OrderedDict[tuple[str, str], TaskSeries] = OrderedDict()
        self._retained_max = retained_tasks_max
        self._stalled: frozenset[tuple[str, str, Reason]] = frozenset()
        self._metrics["onyx_build_info"].labels(version, platform.python_version()).set(1)

    def task(self, job: str, task: str) -> TaskMetrics:
        key = (job, task)
        with self._lock:
            series = self._series.get(key)
            if series is None:
                self._make_room()
                series = self._series[key] = TaskSeries(
                    self._metrics, self._batches.task(job, task), job, task
                )
            series.peers += 1
            self._series.move_to_end(key)
        return PrometheusTaskMetrics(series, partial(self._left, series))

    def entry_applied(self, fn: str, position: int, seconds: float) -> None:
        fn = fn if fn in self._commands else OTHER
        if fn not in self._fns:
            self._fns[fn] = (
                self._metrics["onyx_log_entries_total"].labels(fn),
                self._metrics["onyx_log_apply_seconds"].labels(fn),
            )
        entries, apply_s = self._fns[fn]
        entries.inc()
        apply_s.observe(seconds)
        self._metrics["onyx_log_position_applied"].set(position)
        self._metrics["onyx_replica_version"].set(position)

    def entry_rejected(self) -> None:
        self._metrics["onyx_log_entries_rejected_total"].inc()

    def log_tail(self, position: int) -> None:
        self._metrics["onyx_log_position_tail"].set(position)

    def peers(self, state: PeerState, count: int) -> None:
        self._metrics["onyx_peers"].labels(state).set(count)

    def session_lost(self) -> None:
        self._metrics["onyx_zookeeper_session_losses_total"].inc()

    def stream(self, direction: Direction, messages: int, size_bytes: int) -> None:
        self._metrics["onyx_grpc_stream_messages_total"].labels(direction).inc(messages)
        self._metrics["onyx_grpc_stream_bytes_total"].labels(direction).inc(size_bytes)

    def reconnected(self, times: int) -> None:
        self._metrics["onyx_grpc_stream_reconnects_total"].inc(times)

    def refused(self, reason: Refusal, calls: int) -> None:
        self._metrics["onyx_grpc_calls_refused_total"].labels(reason).inc(calls)

    def stalls(self, found: Sequence[tuple[str, str, Reason, float]]) -> None:
        longest: dict[tuple[str, str, Reason], float] = {}
        for job, task, reason, seconds in found:
            longest[job, task, reason] = max(seconds, longest.get((job, task, reason), 0.0))
        gauge = self._metrics["onyx_job_stalled_seconds"]
        for labels in self._stalled - longest.keys():
            gauge.remove(*labels)
        for labels, seconds in longest.items():
            gauge.labels(*labels).set(seconds)
        self._stalled = frozenset(longest)

    def job_started(self, job: str, job_id: str, guarantee: str) -> None:
        self._metrics["onyx_job_info"].labels(job, job_id, guarantee).set(1)

    def job_ended(self, job: str, job_id: str, guarantee: str) -> None:
        self._metrics["onyx_job_info"].remove(job, job_id, guarantee)

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
            self._metrics[metric.name].remove(*labels)
