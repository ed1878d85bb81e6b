"""Job: how fast is it, where is it held back, and what goes wrong?"""

from __future__ import annotations

from charts.dashboards.panels import Dashboard, Query, Row, heat, lines, stat, table
from charts.dashboards.selectors import CLUSTER, JOB, JOBS, NAMESPACE, TASK, TASKS

_RATE = "[$__rate_interval]"


def _rate(metric: str, labels: str = TASK, by: str = "task") -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}{_RATE}))"


def _quantile(quantile: float, metric: str, by: str) -> str:
    buckets = f"sum by ({by}, le) (rate({metric}_bucket{{{TASK}}}{_RATE}))"
    return f"histogram_quantile({quantile}, {buckets})"


_FULL = (
    f"sum by (task) (onyx_edge_queue_segments{{{TASK}}})"
    f" / (sum by (task) (onyx_edge_queue_capacity_segments{{{TASK}}}) > 0)"
)

_OVERVIEW = Row(
    "Overview",
    [
        stat(
            "Completed",
            Query(f"sum(onyx_source_offset{{{JOB}}})"),
            "Positions of the sources up to which everything is done and durable.",
        ),
        stat(
            "Pending",
            Query(f"sum(onyx_source_pending_segments{{{JOB}}})"),
            "Segments read whose trees are not complete yet; an input has a limit of them.",
        ),
        stat(
            "Segments per second",
            Query(f"sum(rate(onyx_task_segments_in_total{{{JOB}}}{_RATE}))"),
            "Taken by all tasks; a segment counts once for each task it passes.",
            unit="cps",
        ),
        stat(
            "Retries in 1 h",
            Query(f"sum(increase(onyx_task_retries_total{{{JOB}}}[1h]))"),
            "Segments read again: not acknowledged in time, or asked for after a failure.",
            red=1,
        ),
        stat(
            "Exceptions in 1 h",
            Query(f"sum(increase(onyx_task_errors_total{{{JOB}}}[1h]))"),
            "That no flow condition took: left to the lifecycles, or killing the job.",
            red=1,
        ),
        stat(
            "Workers",
            Query(f"count(onyx_job_info{{{JOB}}})"),
            "Worker processes that run tasks of the job.",
        ),
    ],
)

_TASKS = Row(
    "Tasks",
    [
        table(
            "Tasks now",
            [
                Query(_rate("onyx_task_segments_in_total"), "in", "cps"),
                Query(_rate("onyx_task_segments_out_total"), "out", "cps"),
                Query(_rate("onyx_task_busy_seconds_total"), "peers busy"),
                Query(_rate("onyx_task_backpressured_seconds_total"), "peers held back"),
                Query(_FULL, "queue", "percentunit"),
                Query(_quantile(0.99, "onyx_task_batch_seconds", "task"), "batch, p99", "s"),
                Query(_rate("onyx_task_retries_total"), "retries", "cps"),
                Query(_rate("onyx_task_errors_total"), "exceptions", "cps"),
            ],
            "The slowest task is the one whose peers are busy while those before it are held back.",
            key="task",
        ),
        lines(
            "Segments in",
            [Query(_rate("onyx_task_segments_in_total"), "{{task}}")],
            "Per second.",
            unit="cps",
        ),
        lines(
            "Segments out",
            [Query(_rate("onyx_task_segments_out_total"), "{{task}}")],
            "Per second.",
            unit="cps",
        ),
        lines(
            "Segments in, by worker",
            [Query(_rate("onyx_task_segments_in_total", by="pod"), "{{pod}}")],
            "An uneven share means few partitions, or a group key with few values.",
            unit="cps",
            width=24,
        ),
    ],
)

_PRESSURE = Row(
    "Back-pressure",
    [
        heat(
            "How full the queues are",
            Query(_FULL, "{{task}}"),
            "In front of each task. A full queue stops the tasks that write to it.",
        ),
        lines(
            "Peers busy",
            [Query(_rate("onyx_task_busy_seconds_total"), "{{task}}")],
            "Seconds of work a second. As many as the task has peers: it needs more of them.",
        ),
        lines(
            "Peers held back",
            [Query(_rate("onyx_task_backpressured_seconds_total"), "{{task}}")],
            "Seconds a second in which a destination took no more.",
        ),
    ],
)

_BATCHES = Row(
    "Batches",
    [
        lines(
            "Time of a batch, by stage",
            [
                Query(_quantile(0.5, "onyx_task_batch_seconds", "stage"), "{{stage}}, median"),
                Query(_quantile(0.99, "onyx_task_batch_seconds", "stage"), "{{stage}}, p99"),
            ],
            "Read, apply and write, over the tasks chosen above.",
            unit="s",
        ),
        lines(
            "Segments in a batch, mean",
            [
                Query(
                    _rate("onyx_task_batch_size_sum") + " / " + _rate("onyx_task_batch_size_count"),
                    "{{task}}",
                )
            ],
            "Batches of 500 segments and more cost least each.",
        ),
    ],
)

_SOURCES = Row(
    "Sources and faults",
    [
        lines(
            "Pending",
            [Query(f"sum by (task) (onyx_source_pending_segments{{{TASK}}})", "{{task}}")],
            "Segments whose trees are not complete. Flat at its limit: the tasks behind are slow.",
            width=8,
        ),
        lines(
            "Completed per second",
            [
                Query(
                    f"sum by (task) (clamp_min(deriv(onyx_source_offset{{{TASK}}}{_RATE}), 0))",
                    "{{task}}",
                )
            ],
            "Positions of the sources that became complete.",
            unit="cps",
            width=8,
        ),
        lines(
            "Retries and exceptions per second",
            [
                Query(_rate("onyx_task_retries_total"), "retries, {{task}}"),
                Query(_rate("onyx_task_errors_total"), "exceptions, {{task}}"),
            ],
            "Retries without a failure: pendingTimeout is shorter than processing takes.",
            unit="cps",
            width=8,
        ),
    ],
)

_WINDOWS = Row(
    "Windows",
    [
        lines(
            "Lag of event time",
            [Query(f"time() - min by (task) (onyx_task_watermark_seconds{{{TASK}}})", "{{task}}")],
            "How far watermarks are behind the clock. Rising: a source gives no newer times, or a "
            "partition of it is silent and has no idleTimeout.",
            unit="s",
        ),
        lines(
            "Late segments",
            [Query(_rate("onyx_window_late_segments_total"), "{{task}}")],
            "Per second: later than every window of the task allows.",
            unit="cps",
        ),
    ],
)

_SPARK = Row(
    "Spark stages",
    [
        lines(
            "Duration, mean",
            [
                Query(
                    _rate("onyx_spark_stage_seconds_sum")
                    + " / "
                    + _rate("onyx_spark_stage_seconds_count"),
                    "{{task}}",
                )
            ],
            "Of stages that ended well.",
            unit="s",
        ),
        lines(
            "Failures",
            [
                Query(
                    f"sum by (task) (increase(onyx_spark_stage_failures_total{{{TASK}}}{_RATE}))",
                    "{{task}}",
                )
            ],
            "Each is run again a few times before it kills the job.",
        ),
    ],
)

DASHBOARD = Dashboard(
    uid="onyx-job",
    title="Onyx / Job",
    description="One job: throughput, back-pressure, batches, sources and faults by task.",
    variables=[NAMESPACE, CLUSTER, JOBS, TASKS],
    rows=[_OVERVIEW, _TASKS, _PRESSURE, _BATCHES, _SOURCES, _WINDOWS, _SPARK],
)
