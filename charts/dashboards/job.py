"""Job: how fast is it, where is it held back, and what goes wrong?"""

from __future__ import annotations

from charts.dashboards.panels import Dashboard, Panel, Query, Row, heat, lines, stat, table
from charts.dashboards.selectors import CLUSTER, JOB, JOBS, NAMESPACE, TASK, TASKS

_RATE = "[$__rate_interval]"


def _rate(metric: str, labels: str = TASK, by: str = "task") -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}{_RATE}))"


def _quantile(quantile: float, metric: str, by: str) -> str:
    buckets = f"sum by ({by}, le) (rate({metric}_bucket{{{TASK}}}{_RATE}))"
    return f"histogram_quantile({quantile}, {buckets})"


def _mean(histogram: str) -> str:
    return f"{_rate(f'{histogram}_sum')} / {_rate(f'{histogram}_count')}"


def _by_task(title: str, expr: str, about: str, unit: str = "short", width: int = 12) -> Panel:
    """One line a task."""
    return lines(title, [Query(expr, "{{task}}")], about, unit, width)


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
        _by_task(
            "Segments in",
            _rate("onyx_task_segments_in_total"),
            "Per second.",
            unit="cps",
        ),
        _by_task(
            "Segments out",
            _rate("onyx_task_segments_out_total"),
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
        _by_task(
            "Peers busy",
            _rate("onyx_task_busy_seconds_total"),
            "Seconds of work a second. As many as the task has peers: it needs more of them.",
        ),
        _by_task(
            "Peers held back",
            _rate("onyx_task_backpressured_seconds_total"),
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
        _by_task(
            "Segments in a batch, mean",
            _mean("onyx_task_batch_size"),
            "Batches of 500 segments and more cost least each.",
        ),
    ],
)

_SOURCES = Row(
    "Sources and faults",
    [
        _by_task(
            "Pending",
            f"sum by (task) (onyx_source_pending_segments{{{TASK}}})",
            "Segments whose trees are not complete. Flat at its limit: the tasks behind are slow.",
            width=8,
        ),
        _by_task(
            "Completed per second",
            f"sum by (task) (clamp_min(deriv(onyx_source_offset{{{TASK}}}{_RATE}), 0))",
            "Positions of the sources that became complete.",
            unit="cps",
            width=8,
        ),
        lines(
            "Retries and exceptions per second",
            [
                Query(_rate("onyx_task_retries_total"), "retries, {{task}}"),
                Query(_rate("onyx_task_errors_total"), "exceptions, {{task}}"),
                Query(_rate("onyx_task_given_up_segments_total"), "given up, {{task}}"),
            ],
            "Retries without a failure: segments get lost between workers.",
            unit="cps",
            width=8,
        ),
    ],
)

_LAG = Row(
    "Lag and latency",
    [
        _by_task(
            "Segments behind",
            f"sum by (task) (onyx_source_lag_segments{{{TASK}}})",
            "There and not processed, by input. Rising: the job is too slow for what comes.",
            width=8,
        ),
        _by_task(
            "Bytes behind",
            f"sum by (task) (onyx_source_lag_bytes{{{TASK}}})",
            "Likewise, of files and journals.",
            unit="bytes",
            width=8,
        ),
        _by_task(
            "Oldest open tree",
            f"max by (task) (onyx_source_oldest_open_seconds{{{TASK}}})",
            "Since when the oldest segment was read that is not wholly processed.",
            unit="s",
            width=8,
        ),
        lines(
            "Complete latency",
            [
                Query(_quantile(0.5, "onyx_segment_complete_seconds", "task"), "{{task}}, median"),
                Query(_quantile(0.99, "onyx_segment_complete_seconds", "task"), "{{task}}, p99"),
            ],
            "From reading a segment until its whole tree is processed.",
            unit="s",
            width=24,
        ),
    ],
)

_ANSWERS = Row(
    "Requests",
    [
        lines(
            "Answers per second",
            [
                Query(
                    _rate("onyx_request_seconds_count", by="task, transport, status"),
                    "{{task}}, {{transport}}, {{status}}",
                )
            ],
            "To clients of requests inputs, by the status of the answer.",
            stacked=True,
        ),
        lines(
            "Time to the answer, by level",
            [
                Query(
                    _quantile(0.99, "onyx_request_seconds", "task, level"),
                    "{{task}}, {{level}}, p99",
                )
            ],
            "With ack it ends when all that follows is durable in the outputs.",
            unit="s",
        ),
    ],
)

_ACKERS = Row(
    "Ackers",
    [
        lines(
            "Open trees",
            [Query(f"sum by (pod) (onyx_acker_open_trees{{{JOB}}})", "{{pod}}")],
            "Segments that are not wholly processed, at the ackers that account for them. One "
            "acker with all of them may be too few: raise ackers.",
            width=8,
        ),
        lines(
            "Acks per second",
            [Query(f"sum by (pod) (rate(onyx_acker_acks_total{{{JOB}}}{_RATE}))", "{{pod}}")],
            "Absorbed; those of one tree are folded before they are sent.",
            unit="cps",
            width=8,
        ),
        lines(
            "Replays for want of memory",
            [
                Query(
                    f"sum by (pod) (rate(onyx_acker_forgotten_trees_total{{{JOB}}}{_RATE}))",
                    "{{pod}}",
                )
            ],
            "Trees per second for which an acker had no room: lower maxPending, or raise ackers.",
            unit="cps",
            width=8,
        ),
    ],
)

_WINDOWS = Row(
    "Windows",
    [
        _by_task(
            "Lag of event time",
            f"time() - min by (task) (onyx_task_watermark_seconds{{{TASK}}})",
            "How far watermarks are behind the clock. Rising: a source gives no newer times, or a "
            "partition of it is silent and has no idleTimeout.",
            unit="s",
        ),
        _by_task(
            "Late segments",
            _rate("onyx_window_late_segments_total"),
            "Per second: later than every window of the task allows.",
            unit="cps",
        ),
    ],
)

_STATE = Row(
    "State, joins, and what did not go on",
    [
        _by_task(
            "State left to take over",
            f"sum by (task) (onyx_state_recovery_size_bytes{{{TASK}}})"
            f" - sum by (task) (onyx_state_recovery_read_bytes{{{TASK}}})",
            "Read by peers before their task goes on, after a new allocation.",
            unit="bytes",
            width=8,
        ),
        _by_task(
            "Join misses",
            _rate("onyx_task_join_misses_total"),
            "Segments per second without a row in the table that the task joins.",
            unit="cps",
            width=8,
        ),
        lines(
            "Segments that went elsewhere",
            [
                Query(_rate("onyx_task_dead_letters_total"), "dead letters, {{task}}"),
                Query(_rate("onyx_task_unmatched_segments_total"), "unmatched, {{task}}"),
                Query(_rate("onyx_task_failed_request_segments_total"), "answered, {{task}}"),
            ],
            "Per second: to dead letters, nowhere because no flow condition holds, or into the "
            "answer to their request because they failed for good.",
            unit="cps",
            width=8,
        ),
    ],
)

_SPARK = Row(
    "Spark stages",
    [
        stat(
            "Stages in 1 h",
            Query(f"sum(increase(onyx_spark_stage_seconds_count{{{JOB}}}[1h]))"),
            "That ended well.",
        ),
        stat(
            "Failed stages in 1 h",
            Query(f"sum(increase(onyx_spark_stage_failures_total{{{JOB}}}[1h]))"),
            "Each is run again a few times before it kills the job.",
            red=1,
        ),
        stat(
            "Done",
            Query(
                f"sum(onyx_spark_stage_tasks_done{{{JOB}}})"
                f" / clamp_min(sum(onyx_spark_stage_tasks{{{JOB}}}), 1)"
            ),
            "Share of the tasks of Spark that have ended, in the stages that ran last.",
            unit="percentunit",
        ),
        _by_task(
            "Duration, mean",
            _mean("onyx_spark_stage_seconds"),
            "Of stages that ended well.",
            unit="s",
        ),
        _by_task(
            "Failures",
            f"sum by (task) (increase(onyx_spark_stage_failures_total{{{TASK}}}{_RATE}))",
            "Each is run again a few times before it kills the job.",
        ),
        lines(
            "Rows per second",
            [
                Query(_rate("onyx_spark_stage_read_rows_total"), "read, {{task}}"),
                Query(_rate("onyx_spark_stage_written_rows_total"), "written, {{task}}"),
            ],
            "Of stages, failed attempts included; none are known with Spark Connect.",
            unit="cps",
        ),
        lines(
            "Bytes per second",
            [
                Query(_rate("onyx_spark_stage_read_bytes_total"), "read, {{task}}"),
                Query(_rate("onyx_spark_stage_written_bytes_total"), "written, {{task}}"),
            ],
            "Of stages, failed attempts included.",
            unit="Bps",
        ),
        lines(
            "Tasks of Spark",
            [
                Query(f"sum by (task) (onyx_spark_stage_tasks{{{TASK}}})", "planned, {{task}}"),
                Query(f"sum by (task) (onyx_spark_stage_tasks_done{{{TASK}}})", "done, {{task}}"),
                Query(_rate("onyx_spark_stage_task_failures_total"), "failures/s, {{task}}"),
            ],
            "Of the stage that ran last. Spark repeats a task that failed.",
            width=24,
        ),
    ],
)

DASHBOARD = Dashboard(
    uid="onyx-job",
    title="Onyx / Job",
    description="One job: throughput, back-pressure, batches, sources and faults by task.",
    variables=[NAMESPACE, CLUSTER, JOBS, TASKS],
    rows=[
        _OVERVIEW,
        _TASKS,
        _PRESSURE,
        _BATCHES,
        _LAG,
        _ANSWERS,
        _SOURCES,
        _ACKERS,
        _WINDOWS,
        _STATE,
        _SPARK,
    ],
)
