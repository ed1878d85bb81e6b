"""Every metric that the operator exports, as one table, and the hooks that feed it.

Names and labels follow the engine's table (`onyx.telemetry.catalog`): no label is ever the name of
an object. The state of single resources is for kube-state-metrics.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from onyx.telemetry.catalog import Metric
from onyx.telemetry.task_series import build

_RECONCILE_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)

METRICS = (
    Metric(
        "onyx_operator_reconciles_total",
        "counter",
        ("kind", "result"),
        "Reconciliations; result is ok, retry (something cannot be reached) or error.",
    ),
    Metric(
        "onyx_operator_reconcile_seconds",
        "histogram",
        ("kind",),
        "Duration of one reconciliation.",
        _RECONCILE_SECONDS,
    ),
    Metric("onyx_operator_queue_length", "gauge", ("kind",), "Objects that wait in the queue."),
    Metric(
        "onyx_operator_working",
        "gauge",
        (),
        "1 in the operator that has the Lease and reconciles, 0 in those that wait for it.",
    ),
    Metric("onyx_operator_jobs", "gauge", ("phase",), "OnyxJobs by phase."),
    Metric(
        "onyx_operator_jobs_starved",
        "gauge",
        (),
        "OnyxJobs that wait for peers of an OnyxCluster that is to have workers.",
    ),
    Metric(
        "onyx_operator_last_job_failure_timestamp_seconds",
        "gauge",
        (),
        "When the OnyxJob that failed last did so, of those that are there; 0 without one.",
    ),
    Metric(
        "onyx_operator_clusters_without_workers",
        "gauge",
        (),
        "OnyxClusters that are to have workers, and of which none is ready.",
    ),
    Metric(
        "onyx_operator_clusters_connected", "gauge", (), "Logs of clusters that are being followed."
    ),
    Metric(
        "onyx_operator_clusters_unreachable",
        "gauge",
        (),
        "Logs of clusters that cannot be reached now.",
    ),
    Metric(
        "onyx_operator_log_writes_total",
        "counter",
        ("fn",),
        "Commands written to logs, by command.",
    ),
    Metric(
        "onyx_operator_watch_last_event_timestamp_seconds",
        "gauge",
        ("kind",),
        "Time of the last event, or of the last list that showed that none was missed.",
    ),
    Metric(
        "onyx_operator_namespaces",
        "gauge",
        ("state",),
        "Namespaces of this operator (one if it has all): watched, or refused by the API server.",
    ),
    Metric(
        "onyx_operator_admission_reviews_total",
        "counter",
        ("result",),
        "Answers of the validating webhook; result is allowed, denied or failed.",
    ),
    Metric(
        "onyx_operator_api_requests_total",
        "counter",
        ("verb", "code"),
        "Requests to the API server by HTTP status; code 0 when no answer came.",
    ),
    Metric(
        "onyx_operator_api_request_seconds",
        "histogram",
        ("verb",),
        "Time of a request to the API server.",
        _RECONCILE_SECONDS,
    ),
)


class OperatorMetrics:
    """The operator's metrics in a registry of its own. Safe to use from several threads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._metrics = build(self.registry, METRICS)
        for result in ("allowed", "denied", "failed"):  # or the first one raises no counter
            self._metrics["onyx_operator_admission_reviews_total"].labels(result)

    def reconciled(self, kind: str, result: str, seconds: float) -> None:
        """An object has been reconciled: result is `ok`, `retry` or `error`."""
        self._metrics["onyx_operator_reconciles_total"].labels(kind, result).inc()
        self._metrics["onyx_operator_reconcile_seconds"].labels(kind).observe(seconds)

    def working(self) -> None:
        """This operator reconciles from now on."""
        self._metrics["onyx_operator_working"].set(1)

    def queue(self, kind: str, length: int) -> None:
        """Set how many objects wait to be worked on."""
        self._metrics["onyx_operator_queue_length"].labels(kind).set(length)

    def jobs(self, by_phase: Mapping[str, int]) -> None:
        """OnyxJobs by phase, with every phase that exists."""
        for phase, count in by_phase.items():
            self._metrics["onyx_operator_jobs"].labels(phase).set(count)

    def troubles(self, starved: int, failed_s: float, without_workers: int) -> None:
        """Jobs that wait for workers that are to be there, when one failed last, and clusters
        without a worker."""
        self._metrics["onyx_operator_jobs_starved"].set(starved)
        self._metrics["onyx_operator_last_job_failure_timestamp_seconds"].set(failed_s)
        self._metrics["onyx_operator_clusters_without_workers"].set(without_workers)

    def clusters(self, connected: int, unreachable: int) -> None:
        """Logs that are followed, and that cannot be reached."""
        self._metrics["onyx_operator_clusters_connected"].set(connected)
        self._metrics["onyx_operator_clusters_unreachable"].set(unreachable)

    def log_written(self, fn: str) -> None:
        """A command was written to a log."""
        self._metrics["onyx_operator_log_writes_total"].labels(fn).inc()

    def watch_event(self, kind: str) -> None:
        """The watch of a kind is up to date."""
        gauge = self._metrics["onyx_operator_watch_last_event_timestamp_seconds"]
        gauge.labels(kind).set(time.time())

    def namespaces(self, watched: int, refused: int) -> None:
        """Namespaces that are watched, and those that the API server refuses to list or watch."""
        self._metrics["onyx_operator_namespaces"].labels("watched").set(watched)
        self._metrics["onyx_operator_namespaces"].labels("refused").set(refused)

    def reviewed(self, result: str) -> None:
        """The webhook has answered: `allowed`, `denied` or `failed`."""
        self._metrics["onyx_operator_admission_reviews_total"].labels(result).inc()

    def api_request(self, verb: str, status: int, seconds: float) -> None:
        """A request to the API server has ended."""
        self._metrics["onyx_operator_api_requests_total"].labels(verb, str(status)).inc()
        self._metrics["onyx_operator_api_request_seconds"].labels(verb).observe(seconds)
