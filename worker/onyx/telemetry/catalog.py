"""Every metric that Onyx exports, as one table: the registry, the documentation and the tests that
guard both are derived from it.

Names follow Prometheus practice: prefix `onyx_`, base units, counters end in `_total`. Labels are
bounded by construction: the names of jobs and tasks (of which the registry retains a limited
number), and members of the closed sets below. No label is ever a peer, a partition, a group key, a
path or text of a user's. What differs by process (`pod`, `instance`) comes from the scrape.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from onyx.stalls import Reason

Kind = Literal["counter", "gauge", "histogram"]


class Stage(StrEnum):
    """Part of the work on one batch."""

    READ = "read"
    APPLY = "apply"
    WRITE = "write"


class PeerState(StrEnum):
    """What a virtual peer of this process is doing."""

    IDLE = "idle"
    """It has no task."""
    WARMING = "warming"
    """It has a task and cannot receive yet in the newest allocation version."""
    ALLOCATED = "allocated"
    """It has a task and works on it."""
    LEAVING = "leaving"
    """Its process has been asked to end."""


class Direction(StrEnum):
    IN = "in"
    OUT = "out"


class Refusal(StrEnum):
    """Why a call from another process was not let in."""

    BUSY = "busy"
    """Others were being let in; a member comes again."""
    CERTIFICATE = "certificate"
    """Its certificate does not carry the name of the workers."""
    GARBAGE = "garbage"
    """It began with something else than a greeting or a question."""
    GROUP = "group"
    """It looked for another group, or shares no job with this one."""
    PROTOCOL = "protocol"
    """It is of another version of Onyx."""
    SILENT = "silent"
    """It did not say in time who it is."""
    TENANCY = "tenancy"
    """It is of another cluster."""


TASK = ("job", "task")
CLOSED_LABELS: dict[str, frozenset[str]] = {
    "stage": frozenset(Stage),
    "state": frozenset(PeerState),
    "direction": frozenset(Direction),
    "reason": frozenset(Refusal),
    "cause": frozenset(Reason),
}
"""Labels whose values are fixed here. `fn` is closed by the commands that a registry is given."""

_BATCH_SECONDS = (1e-4, 5e-4, 1e-3, 5e-3, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
_BATCH_SEGMENTS = (1.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 5_000.0, 10_000.0)
_APPLY_SECONDS = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0)
_SPARK_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One row: what is exported and what it means."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()


METRICS = (
    Metric("onyx_task_segments_in_total", "counter", TASK, "Segments taken by the task."),
    Metric("onyx_task_segments_out_total", "counter", TASK, "Segments emitted by the task."),
    Metric(
        "onyx_task_batch_seconds",
        "histogram",
        (*TASK, "stage"),
        "Time spent on one batch.",
        _BATCH_SECONDS,
    ),
    Metric(
        "onyx_task_batch_size", "histogram", TASK, "Segments in one batch taken.", _BATCH_SEGMENTS
    ),
    Metric(
        "onyx_task_busy_seconds_total",
        "counter",
        TASK,
        "Time spent on batches; its rate is the share of time that the task is busy.",
    ),
    Metric(
        "onyx_task_backpressured_seconds_total",
        "counter",
        TASK,
        "Time during which the task could not go on because a destination refused more.",
    ),
    Metric(
        "onyx_task_retries_total",
        "counter",
        TASK,
        "Segments read again from the source: not acknowledged in time, or asked for.",
    ),
    Metric(
        "onyx_task_errors_total",
        "counter",
        TASK,
        "Exceptions that no flow condition took: left to the lifecycles, or killing the job.",
    ),
    Metric(
        "onyx_task_dead_letters_total",
        "counter",
        TASK,
        "Segments that failed and were sent to the task's deadLetter; again, if they are replayed.",
    ),
    Metric(
        "onyx_edge_queue_segments", "gauge", TASK, "Segments waiting in front of the task here."
    ),
    Metric(
        "onyx_edge_queue_capacity_segments",
        "gauge",
        TASK,
        "Segments that may wait in front of the task here before senders are refused.",
    ),
    Metric(
        "onyx_source_pending_segments",
        "gauge",
        TASK,
        "Segments read by the input whose trees are not complete yet.",
    ),
    Metric(
        "onyx_source_offset",
        "gauge",
        TASK,
        "Positions completed by the input, summed over the partitions read here.",
    ),
    Metric(
        "onyx_spark_stage_seconds",
        "histogram",
        TASK,
        "Duration of a Spark stage that ended well.",
        _SPARK_SECONDS,
    ),
    Metric(
        "onyx_spark_stage_failures_total",
        "counter",
        TASK,
        "Spark stages that failed; each is run again a few times.",
    ),
    Metric(
        "onyx_task_watermark_seconds",
        "gauge",
        TASK,
        "Event time that the peers of the task here have all come to, as Unix time; its lag is "
        "`time()` less this.",
    ),
    Metric(
        "onyx_window_late_segments_total",
        "counter",
        TASK,
        "Segments later than every window of the task allows.",
    ),
    Metric(
        "onyx_state_recovery_read_bytes",
        "gauge",
        TASK,
        "State read so far by peers that take it over.",
    ),
    Metric(
        "onyx_state_recovery_size_bytes",
        "gauge",
        TASK,
        "State to be read by peers that take it over.",
    ),
    Metric(
        "onyx_job_stalled_seconds",
        "gauge",
        (*TASK, "cause"),
        "For how long a peer of the task here has not advanced though it has something to do; "
        "absent while all advance.",
    ),
    Metric("onyx_log_position_applied", "gauge", (), "Position of the last log entry applied."),
    Metric("onyx_log_position_tail", "gauge", (), "Position of the last log entry seen."),
    Metric("onyx_log_entries_total", "counter", ("fn",), "Log entries applied, by command."),
    Metric(
        "onyx_log_entries_rejected_total",
        "counter",
        (),
        "Log entries that no worker can read: of another version, or with names out of the rule.",
    ),
    Metric(
        "onyx_log_apply_seconds",
        "histogram",
        ("fn",),
        "Time to apply one log entry, by command.",
        _APPLY_SECONDS,
    ),
    Metric(
        "onyx_replica_version",
        "gauge",
        (),
        "Version of the replica: workers agree when it is idle.",
    ),
    Metric("onyx_peers", "gauge", ("state",), "Virtual peers of this process, by state."),
    Metric(
        "onyx_zookeeper_session_losses_total",
        "counter",
        (),
        "ZooKeeper sessions lost: each starts a new incarnation of the group.",
    ),
    Metric(
        "onyx_grpc_stream_bytes_total", "counter", ("direction",), "Bytes of frames between groups."
    ),
    Metric("onyx_grpc_stream_messages_total", "counter", ("direction",), "Frames between groups."),
    Metric("onyx_grpc_stream_reconnects_total", "counter", (), "Streams dialled again."),
    Metric(
        "onyx_grpc_calls_refused_total",
        "counter",
        ("reason",),
        "Calls on the port for other groups that were not let in: not from a member.",
    ),
    Metric("onyx_job_info", "gauge", ("job", "job_id", "guarantee"), "1 for each job run here."),
    Metric("onyx_build_info", "gauge", ("version", "python"), "1; what runs here."),
)
