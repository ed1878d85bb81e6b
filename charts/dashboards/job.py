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
        lines(
            "Standing still",
            [
                Query(
                    f"max by (task, cause) (onyx_job_stalled_seconds{{{TASK}}})",
                    "{{task}}, {{cause}}",
                )
            ],
            "For how long a peer has had work and has not advanced. Nothing here is the rule.",
            unit="s",
            width=24,
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
                Query(_rate("onyx_source_taken_over_total"), "taken over, {{task}}"),
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

_MESSAGES = Row(
    "Queues, journals, and outputs over HTTP",
    [
        lines(
            "Messages of queues",
            [
                Query(_rate("onyx_source_acked_messages_total"), "acknowledged, {{task}}"),
                Query(_rate("onyx_source_failed_messages_total"), "given back, {{task}}"),
                Query(_rate("onyx_source_terminated_messages_total"), "given up, {{task}}"),
                Query(_rate("onyx_source_redelivered_messages_total"), "known before, {{task}}"),
            ],
            "Per second. What is given back comes again; what was known before was not taken a "
            "second time.",
            unit="cps",
            width=8,
        ),
        _by_task(
            "Journals",
            f"sum by (task) (onyx_source_journal_bytes{{{TASK}}})",
            "Of requests and live sources: what is taken and not processed.",
            unit="bytes",
            width=8,
        ),
        lines(
            "Requests of outputs",
            [
                Query(_rate("onyx_http_requests_total"), "answered, {{task}}"),
                Query(_rate("onyx_http_retries_total"), "tried again, {{task}}"),
                Query(_rate("onyx_http_refusals_total"), "refused, {{task}}"),
            ],
            "Per second, of outputs with plugin http. What is refused becomes a dead letter, or "
            "kills the job.",
            unit="cps",
            width=8,
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
    "State",
    [
        _by_task(
            "Size",
            f"sum by (task) (onyx_state_bytes{{{TASK}}})",
            "Of the state logs: as large as the state, or a few times that.",
            unit="bytes",
            width=8,
        ),
        lines(
            "Groups and timers",
            [
                Query(f"sum by (task) (onyx_state_groups{{{TASK}}})", "groups, {{task}}"),
                Query(f"sum by (task) (onyx_state_timers{{{TASK}}})", "timers, {{task}}"),
                Query(f"sum by (task) (onyx_state_spilled_extents{{{TASK}}})", "on disk, {{task}}"),
            ],
            "What has a state, and what of it is only on local disks. Groups that only grow: "
            "nothing ends them, so give them a ttl, or the window an end.",
            width=8,
        ),
        _by_task(
            "Left to take over",
            f"sum by (task) (onyx_state_recovery_size_bytes{{{TASK}}})"
            f" - sum by (task) (onyx_state_recovery_read_bytes{{{TASK}}})",
            "Read by peers before their task goes on, after a new allocation.",
            unit="bytes",
            width=8,
        ),
    ],
)

_JOINS = Row(
    "Joins and tables",
    [
        lines(
            "Segments of each side",
            [Query(f"sum by (task, side) (onyx_join_side_rows{{{TASK}}})", "{{task}}, {{side}}")],
            "What a join of streams keeps of each task before it.",
            width=8,
        ),
        lines(
            "Bytes of each side",
            [Query(f"sum by (task, side) (onyx_join_side_bytes{{{TASK}}})", "{{task}}, {{side}}")],
            "Of these segments. Rising with an even stream: event time stands still.",
            unit="bytes",
            width=8,
        ),
        _by_task(
            "Forgotten",
            _rate("onyx_join_expired_rows_total"),
            "Segments per second that nothing meets any more. None: event time stands still.",
            unit="cps",
            width=8,
        ),
        lines(
            "Rows of tables",
            [Query(f"max by (task) (onyx_table_rows{{{TASK}}})", "{{task}}")],
            "In the worker that has most of them: each has the whole table, or its part.",
            width=6,
        ),
        _by_task(
            "Bytes of tables",
            f"max by (task) (onyx_table_bytes{{{TASK}}})",
            "Of these rows, in memory.",
            unit="bytes",
            width=6,
        ),
        _by_task(
            "Age of tables",
            f"max by (task) (onyx_table_age_seconds{{{TASK}}})",
            "Since a worker began to read what it has. Above refresh: the source cannot be read.",
            unit="s",
            width=6,
        ),
        _by_task(
            "Join misses",
            _rate("onyx_task_join_misses_total"),
            "Segments per second without a row in the table that the task joins.",
            unit="cps",
            width=6,
        ),
    ],
)

_ELSEWHERE = Row(
    "What did not go on",
    [
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
            width=24,
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
        _ELSEWHERE,
        _MESSAGES,
        _WINDOWS,
        _STATE,
        _JOINS,
        _ACKERS,
        _SPARK,
    ],
)
