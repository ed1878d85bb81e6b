"""Operator: does it keep up, does it reach what it needs, and what does it do?"""

from __future__ import annotations

from charts.dashboards.panels import Dashboard, Query, Row, lines, stat
from charts.dashboards.selectors import OPERATOR, OPERATOR_NAMESPACE

_RATE = "[$__rate_interval]"


def _rate(metric: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{OPERATOR}{more}}}{_RATE}))"


def _p99(metric: str, by: str) -> str:
    return f"histogram_quantile(0.99, {_rate(f'{metric}_bucket', f'{by}, le')})"


_OVERVIEW = Row(
    "Overview",
    [
        stat(
            "Clusters followed",
            Query(f"sum(onyx_operator_clusters_connected{{{OPERATOR}}})"),
            "OnyxClusters whose log the operator follows.",
        ),
        stat(
            "Clusters unreachable",
            Query(f"sum(onyx_operator_clusters_unreachable{{{OPERATOR}}})"),
            "Their ZooKeeper does not answer. Jobs go on; their status is not news.",
            red=1,
        ),
        stat(
            "OnyxJobs",
            Query(f"sum(onyx_operator_jobs{{{OPERATOR}}})"),
            "In any phase.",
        ),
        stat(
            "Waiting objects",
            Query(f"sum(onyx_operator_queue_length{{{OPERATOR}}})"),
            "Objects that wait to be reconciled.",
        ),
        stat(
            "Oldest watch",
            Query(f"max(time() - onyx_operator_watch_last_event_timestamp_seconds{{{OPERATOR}}})"),
            "Time since the last event of a watch. Long is normal where nothing changes.",
            unit="s",
        ),
        stat(
            "Refused requests in 1 h",
            Query(
                "sum(increase(onyx_operator_api_requests_total{"
                f'{OPERATOR}, code=~"403|5..|0"'
                "}[1h])) or vector(0)"
            ),
            "By the API server: forbidden, failed, or not answered.",
            red=1,
        ),
        stat(
            "Operators that work",
            Query(f"sum(onyx_operator_working{{{OPERATOR}}})"),
            "The one that has the Lease; others wait for it.",
        ),
        stat(
            "OnyxJobs without peers",
            Query(f"max(onyx_operator_jobs_starved{{{OPERATOR}}})"),
            "They wait for room in a cluster that is to have workers.",
            red=1,
        ),
        stat(
            "Clusters without workers",
            Query(f"max(onyx_operator_clusters_without_workers{{{OPERATOR}}})"),
            "They are to have some, and none is ready.",
            red=1,
        ),
        stat(
            "Namespaces refused",
            Query(f'max(onyx_operator_namespaces{{{OPERATOR}, state="refused"}})'),
            "The operator may not look after them, or they are gone.",
            red=1,
        ),
        stat(
            "Last failure of a job",
            Query(
                "time() - max("
                f"onyx_operator_last_job_failure_timestamp_seconds{{{OPERATOR}}} > 0) or vector(0)"
            ),
            "Time since an OnyxJob failed that is still there; 0: none did.",
            unit="s",
        ),
        stat(
            "Specs denied in 1 h",
            Query(
                "sum(increase(onyx_operator_admission_reviews_total{"
                f'{OPERATOR}, result!="allowed"'
                "}[1h]))"
            ),
            "Answers of the webhook that let nothing in, because of the spec or a failure.",
        ),
    ],
)

_JOBS = Row(
    "Jobs",
    [
        lines(
            "OnyxJobs by phase",
            [Query(f"sum by (phase) (onyx_operator_jobs{{{OPERATOR}}})", "{{phase}}")],
            "As their status says.",
            stacked=True,
        ),
        lines(
            "Commands written to logs",
            [Query(_rate("onyx_operator_log_writes_total", "fn"), "{{fn}}")],
            "Per second, by command.",
            unit="cps",
        ),
    ],
)

_RECONCILING = Row(
    "Reconciling",
    [
        lines(
            "Reconciliations",
            [
                Query(
                    _rate("onyx_operator_reconciles_total", "kind, result"), "{{kind}}: {{result}}"
                )
            ],
            "Per second. retry: something could not be reached; error: a fault of the operator.",
            unit="cps",
            width=8,
        ),
        lines(
            "Duration, 99th percentile",
            [Query(_p99("onyx_operator_reconcile_seconds", "kind"), "{{kind}}")],
            "Of one reconciliation.",
            unit="s",
            width=8,
        ),
        lines(
            "Waiting objects",
            [Query(f"sum by (kind) (onyx_operator_queue_length{{{OPERATOR}}})", "{{kind}}")],
            "More and more of them: the operator does not keep up.",
            width=8,
        ),
    ],
)

_API = Row(
    "API server",
    [
        lines(
            "Requests",
            [Query(_rate("onyx_operator_api_requests_total", "verb, code"), "{{verb}} {{code}}")],
            "Per second. Code 0: there was no answer.",
            unit="reqps",
        ),
        lines(
            "Duration, 99th percentile",
            [Query(_p99("onyx_operator_api_request_seconds", "verb"), "{{verb}}")],
            "Of one request.",
            unit="s",
        ),
    ],
)

_ZOOKEEPER = Row(
    "Servers of ZooKeeper",
    [
        lines(
            "Latency",
            [
                Query(
                    f"{_rate(f'onyx_zookeeper_{what}_seconds_total', 'pod')}"
                    f" / {_rate(f'onyx_zookeeper_{count}_total', 'pod')}",
                    f"{name}, {{{{pod}}}}",
                )
                for what, count, name in (
                    ("served_request", "served_requests", "requests"),
                    ("disk_sync", "disk_syncs", "waits for the disk"),
                )
            ],
            "Mean time to an answer, and until the disk has what was written: a slow disk makes "
            "both slow, a lack of CPU only the first.",
            unit="s",
            width=8,
        ),
        lines(
            "Outstanding requests",
            [Query(f"sum by (pod) (onyx_zookeeper_outstanding_requests{{{OPERATOR}}})", "{{pod}}")],
            "Taken and not answered. More and more: the server does not keep up.",
            width=8,
        ),
        lines(
            "Room used",
            [
                Query(
                    f"1 - max by (pod) (onyx_zookeeper_disk_free_bytes{{{OPERATOR}}})"
                    f" / max by (pod) (onyx_zookeeper_disk_bytes{{{OPERATOR}}})",
                    "disk, {{pod}}",
                ),
                Query(
                    f"max by (pod) (onyx_zookeeper_data_bytes{{{OPERATOR}}})"
                    f" / max by (pod) (onyx_zookeeper_heap_bytes{{{OPERATOR}}})",
                    "heap, {{pod}}",
                ),
            ],
            "Of its disk, and of its heap by data. A server that is short of either dies, and all "
            "jobs stand still.",
            unit="percentunit",
            width=8,
        ),
    ],
)

DASHBOARD = Dashboard(
    uid="onyx-operator",
    title="Onyx / Operator",
    description="The operator: jobs by phase, reconciling, clusters that it cannot reach.",
    variables=[OPERATOR_NAMESPACE],
    rows=[_OVERVIEW, _JOBS, _RECONCILING, _API, _ZOOKEEPER],
)
