"""Fleet: is every cluster whole, does it agree, and is the log keeping up?"""

from __future__ import annotations

from charts.dashboards.panels import Dashboard, Query, Row, lines, listing, stat
from charts.dashboards.selectors import BY_CLUSTER, CLUSTER, FLEET, NAMESPACE

_OF_CLUSTER = "{{namespace}}/{{onyx_cluster}}"

_OVERVIEW = Row(
    "Overview",
    [
        stat("Workers", Query(f"count(onyx_build_info{{{FLEET}}})"), "Worker processes scraped."),
        stat(
            "Peers",
            Query(f"sum(onyx_peers{{{FLEET}}})"),
            "Virtual peers of all workers, in any state.",
        ),
        stat(
            "Idle peers",
            Query(f'sum(onyx_peers{{{FLEET}, state="idle"}})'),
            "Peers without a task: room for more jobs.",
        ),
        stat(
            "Jobs",
            Query(f"count(count by ({BY_CLUSTER}, job_id) (onyx_job_info{{{FLEET}}}))"),
            "Jobs that have a task on some worker.",
        ),
        stat(
            "Segments per second",
            Query(f"sum(rate(onyx_task_segments_in_total{{{FLEET}}}[$__rate_interval]))"),
            "Taken by all tasks of all jobs; a segment counts once for each task it passes.",
            unit="cps",
        ),
        stat(
            "Sessions lost in 1 h",
            Query(f"sum(increase(onyx_zookeeper_session_losses_total{{{FLEET}}}[1h]))"),
            "Each starts a worker's group anew, under new ids.",
            red=1,
        ),
        stat(
            "Killed for memory in 1 h",
            Query(f"sum(increase(onyx_memory_kills_total{{{FLEET}}}[1h]))"),
            "Processes that the kernel has killed; the containers go on unless that repeats.",
            red=1,
        ),
    ],
)

_PEERS = Row(
    "Peers and jobs",
    [
        lines(
            "Peers by state",
            [Query(f"sum by (state) (onyx_peers{{{FLEET}}})", "{{state}}")],
            "Warming peers for long: a task cannot start. Leaving: a worker is going.",
            stacked=True,
        ),
        listing(
            "Jobs running",
            Query(f"max by ({BY_CLUSTER}, job, job_id, guarantee) (onyx_job_info{{{FLEET}}})"),
            "Jobs that have a task on some worker.",
            ["namespace", "onyx_cluster", "job", "job_id", "guarantee"],
        ),
    ],
)

_LOG = Row(
    "Log",
    [
        lines(
            "Entries not applied yet",
            [
                Query(
                    f"max by ({BY_CLUSTER}) (onyx_log_position_tail{{{FLEET}}})"
                    f" - on ({BY_CLUSTER}) group_right onyx_log_position_applied{{{FLEET}}}",
                    "{{pod}}",
                )
            ],
            "How far a worker is behind the newest entry that any worker has seen.",
        ),
        lines(
            "Spread of replica versions",
            [
                Query(
                    f"max by ({BY_CLUSTER}) (onyx_replica_version{{{FLEET}}})"
                    f" - min by ({BY_CLUSTER}) (onyx_replica_version{{{FLEET}}})",
                    _OF_CLUSTER,
                )
            ],
            "Workers agree when this returns to 0 after each change.",
        ),
        lines(
            "Entries applied per second",
            [
                Query(
                    f"sum by (fn) (rate(onyx_log_entries_total{{{FLEET}}}[$__rate_interval]))",
                    "{{fn}}",
                )
            ],
            "By command and summed over workers, each of which applies every entry.",
            stacked=True,
        ),
        lines(
            "Time to apply an entry, 99th percentile",
            [
                Query(
                    "histogram_quantile(0.99, sum by (fn, le)"
                    f" (rate(onyx_log_apply_seconds_bucket{{{FLEET}}}[$__rate_interval])))",
                    "{{fn}}",
                )
            ],
            "Scheduling is part of it; it grows with members and jobs.",
            unit="s",
        ),
        lines(
            "Bytes in ZooKeeper",
            [
                Query(f"max by ({BY_CLUSTER}) ({series}{{{FLEET}}})", f"{name}, {_OF_CLUSTER}")
                for series, name in (
                    ("onyx_log_stored_bytes", "stored"),
                    ("onyx_log_stored_bytes_max", "allowed"),
                )
            ],
            "Jobs that do not fit are refused.",
            unit="bytes",
        ),
        lines(
            "Entries rejected per second",
            [
                Query(
                    f"max by ({BY_CLUSTER})"
                    f" (rate(onyx_log_entries_rejected_total{{{FLEET}}}[$__rate_interval]))",
                    _OF_CLUSTER,
                )
            ],
            "By every worker: another version of Onyx wrote them, or names break the rule.",
            unit="cps",
        ),
    ],
)

_NETWORK = Row(
    "Network",
    [
        lines(
            "Bytes between workers",
            [
                Query(
                    "sum by (direction)"
                    f" (rate(onyx_grpc_stream_bytes_total{{{FLEET}}}[$__rate_interval]))",
                    "{{direction}}",
                )
            ],
            "Segments and acknowledgements. Tasks of one process exchange batches without it.",
            unit="Bps",
            width=8,
        ),
        lines(
            "Frames between workers",
            [
                Query(
                    "sum by (direction)"
                    f" (rate(onyx_grpc_stream_messages_total{{{FLEET}}}[$__rate_interval]))",
                    "{{direction}}",
                )
            ],
            "Each costs some 0.1 ms of CPU: many small ones are a reason for larger batches.",
            width=8,
        ),
        lines(
            "Faults",
            [
                Query(
                    "sum by (pod)"
                    f" (increase(onyx_grpc_stream_reconnects_total{{{FLEET}}}[$__rate_interval]))",
                    "streams dialled again, {{pod}}",
                ),
                Query(
                    "sum by (pod) (increase("
                    f"onyx_zookeeper_session_losses_total{{{FLEET}}}[$__rate_interval]))",
                    "sessions lost, {{pod}}",
                ),
            ],
            "Nothing here is the rule, something is a network or a worker that stalls.",
            width=8,
        ),
        lines(
            "Calls refused",
            [
                Query(
                    "sum by (reason)"
                    f" (increase(onyx_grpc_calls_refused_total{{{FLEET}}}[$__rate_interval]))",
                    "{{reason}}",
                )
            ],
            "On the port that workers have for each other, and clients for requests. Many: "
            "somebody without a certificate or token tries it.",
            width=24,
        ),
    ],
)

_ZOOKEEPER = Row(
    "ZooKeeper, as workers see it",
    [
        lines(
            "Time to an answer, mean",
            [
                Query(
                    "sum by (pod)"
                    f" (rate(onyx_zookeeper_request_seconds_total{{{FLEET}}}[$__rate_interval]))"
                    " / sum by (pod)"
                    f" (rate(onyx_zookeeper_requests_total{{{FLEET}}}[$__rate_interval]))",
                    "{{pod}}",
                )
            ],
            "From sending a request to its answer. One worker alone: its CPU or its network. All: "
            "ZooKeeper's disk.",
            unit="s",
            width=8,
        ),
        lines(
            "Bytes",
            [
                Query(
                    "sum by (direction)"
                    f" (rate(onyx_zookeeper_bytes_total{{{FLEET}}}[$__rate_interval]))",
                    "{{direction}}",
                )
            ],
            "Every worker reads the whole log: what comes in grows with workers and entries.",
            unit="Bps",
            width=8,
        ),
        lines(
            "Watches",
            [Query(f"sum by (pod) (onyx_zookeeper_watches{{{FLEET}}})", "{{pod}}")],
            "Set by each worker: they grow with its groups, not with time.",
            width=8,
        ),
    ],
)

_REQUESTS = Row(
    "Requests over HTTP",
    [
        lines(
            "Requests per second",
            [
                Query(
                    "sum by (code)"
                    f" (rate(onyx_http_served_requests_total{{{FLEET}}}[$__rate_interval]))",
                    "{{code}}",
                )
            ],
            "By how they were answered. 4xx: clients change something, or come again (429). "
            "Gone: the client did not wait.",
            stacked=True,
        ),
        lines(
            "Time to the answer",
            [
                Query(
                    f"histogram_quantile({share}, sum by (le)"
                    f" (rate(onyx_http_served_seconds_bucket{{{FLEET}}}[$__rate_interval])))",
                    name,
                )
                for share, name in ((0.5, "median"), (0.99, "99th percentile"))
            ],
            "With ack=ack it ends when all that follows is durable in the outputs.",
            unit="s",
        ),
    ],
)

DASHBOARD = Dashboard(
    uid="onyx-fleet",
    title="Onyx / Fleet",
    description="Workers, peers, jobs and the log of every OnyxCluster.",
    variables=[NAMESPACE, CLUSTER],
    rows=[_OVERVIEW, _PEERS, _LOG, _ZOOKEEPER, _NETWORK, _REQUESTS],
)
