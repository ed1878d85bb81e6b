"""Every metric that a worker exports, as one table.

The registry, the reference page and the tests are derived from it. To add a metric, add a row here
and call `add`, `set` or `observe` with it (`telemetry/interface.py`) where it is measured.

Names follow Prometheus practice: prefix `onyx_`, base units, counters end in `_total`. Labels are
bounded by construction: the names of jobs and tasks (of which the registry retains a limited
number), and members of closed sets (`telemetry/labels.py`). No label is ever a peer, a partition, a
group key, a path or text of a user's. What differs by process (`pod`, `instance`) comes from the
scrape.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram"]
Merge = Literal["sum", "kept", "least"]
"""`sum`: the sum over the peers that are there. `kept`: the sum, in which the value of a peer stays
when it leaves. `least`: the least of the peers that have one; without any there is no series."""


TASK = ("job", "task")
RUN = ("job", "job_id", "task")
"""Jobs of one name are apart."""

_BATCH_SECONDS = (1e-4, 5e-4, 1e-3, 5e-3, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
_COMPLETE_SECONDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0,
)  # fmt: skip
_BATCH_SEGMENTS = (1.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 5_000.0, 20_000.0)
_APPLY_SECONDS = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0)
_SERVED_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
ZOOKEEPER_LATENCIES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Bounds of what workers measure of their requests (`reports.measures`)."""
_SPARK_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0)


class Metric(msgspec.Struct, frozen=True, eq=False):
    """One row: what is exported and what it means. Compared by identity, as it is a key."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()
    merge: Merge = "sum"
    """The merging of a gauge with the labels of a task: how the values of its peers make one."""


SEGMENTS_IN = Metric(
    "onyx_task_segments_in_total",
    "counter",
    TASK,
    "Segments taken by the task.",
)
SEGMENTS_OUT = Metric(
    "onyx_task_segments_out_total",
    "counter",
    TASK,
    "Segments emitted by the task.",
)
BATCH_SECONDS = Metric(
    "onyx_task_batch_seconds",
    "histogram",
    (*TASK, "stage"),
    "Time spent on one batch.",
    _BATCH_SECONDS,
)
BATCH_SIZE = Metric(
    "onyx_task_batch_size",
    "histogram",
    TASK,
    "Segments in one batch taken.",
    _BATCH_SEGMENTS,
)
BUSY_SECONDS = Metric(
    "onyx_task_busy_seconds_total",
    "counter",
    TASK,
    "Time spent on batches; its rate is the share of time that the task is busy.",
)
BACKPRESSURED_SECONDS = Metric(
    "onyx_task_backpressured_seconds_total",
    "counter",
    TASK,
    "Time during which the task could not advance because a destination had no room.",
)
COMPLETE_SECONDS = Metric(
    "onyx_segment_complete_seconds",
    "histogram",
    TASK,
    "Time from reading a segment of an input until its whole tree is processed: `task` is the "
    "input. What is not accounted for (at-most-once) has none.",
    _COMPLETE_SECONDS,
)
RETRIES = Metric(
    "onyx_task_retries_total", "counter", TASK,
    "Segments read again: not acknowledged in time, or a function or flow condition asked for it.",
)  # fmt: skip
TAKEN_OVER = Metric(
    "onyx_source_taken_over_total", "counter", TASK,
    "Segments read by an input that an owner of the partition before it may have sent already.",
)  # fmt: skip
OPEN_TREES = Metric(
    "onyx_acker_open_trees", "gauge", TASK,
    "Trees that are not complete, at ackers among the peers of the task, some seconds ago.",
)  # fmt: skip
ACKS = Metric(
    "onyx_acker_acks_total",
    "counter",
    TASK,
    "Acks that ackers among the peers of the task have absorbed.",
)
FORGOTTEN_TREES = Metric(
    "onyx_acker_forgotten_trees_total",
    "counter",
    TASK,
    "Open trees for which an acker had no room; inputs read them again at once.",
)
GIVEN_UP = Metric(
    "onyx_task_given_up_segments_total",
    "counter",
    TASK,
    "Segments of an input that failed or were lost and are not read again: with retryMode none, or "
    "because the queue gives them again (onFailure source).",
)
ERRORS = Metric(
    "onyx_task_errors_total",
    "counter",
    TASK,
    "Exceptions that no flow condition handles: the job's lifecycles handle them, or the job "
    "is killed.",
)
ANSWERED = Metric(
    "onyx_task_failed_request_segments_total", "counter", TASK,
    "Segments of requests that failed for good: the answers to the requests say so, or the queue "
    "hears of it. A replayed segment counts again.",
)  # fmt: skip
DEAD_LETTERS = Metric(
    "onyx_task_dead_letters_total", "counter", TASK,
    "Segments that failed and were sent to the task's deadLetter, or written to the deadLetterPath "
    "of its plugin; a replayed segment counts again.",
)  # fmt: skip
UNMATCHED = Metric(
    "onyx_task_unmatched_segments_total",
    "counter",
    TASK,
    "Segments that go nowhere because no flow condition of the task holds for them; a replayed "
    "segment counts again.",
)
WITHOUT_ROW = Metric(
    "onyx_task_join_misses_total", "counter", TASK,
    "Segments without a row in the table that the task joins; a replayed segment counts again.",
)  # fmt: skip
QUEUE = Metric(
    "onyx_edge_queue_segments",
    "gauge",
    TASK,
    "Segments that wait in the task's inboxes in this process.",
)
QUEUE_CAPACITY = Metric(
    "onyx_edge_queue_capacity_segments",
    "gauge",
    TASK,
    "Segments that may wait in the task's inboxes in this process before senders are refused.",
)
SOURCE_PENDING = Metric(
    "onyx_source_pending_segments",
    "gauge",
    TASK,
    "Segments read by the input whose trees are not complete yet.",
)
SOURCE_OFFSET = Metric(
    "onyx_source_offset",
    "gauge",
    TASK,
    "Positions up to which everything is processed, summed over the partitions that this process "
    "reads, or has read to the end.",
    merge="kept",
)
SOURCE_LAG = Metric(
    "onyx_source_lag_segments", "gauge", RUN,
    "Segments that are there and not processed, in the partitions that this process reads; absent "
    "while the source does not say it.",
)  # fmt: skip
SOURCE_LAG_BYTES = Metric(
    "onyx_source_lag_bytes", "gauge", RUN,
    "Bytes that are there and not processed, likewise.",
)  # fmt: skip
SOURCE_OLDEST = Metric(
    "onyx_source_oldest_open_seconds", "gauge", RUN,
    "Time since the oldest segment was read whose tree is not processed; absent without one.",
)  # fmt: skip
SPARK_STAGE_SECONDS = Metric(
    "onyx_spark_stage_seconds",
    "histogram",
    TASK,
    "Duration of a Spark stage that succeeded.",
    _SPARK_SECONDS,
)
SPARK_STAGE_FAILURES = Metric(
    "onyx_spark_stage_failures_total",
    "counter",
    TASK,
    "Spark stages that failed; each is retried a few times.",
)
SPARK_STAGE_TASKS = Metric(
    "onyx_spark_stage_tasks",
    "gauge",
    TASK,
    "Tasks of Spark in the stage that ran last, as far as Spark has planned it.",
)
SPARK_STAGE_TASKS_DONE = Metric(
    "onyx_spark_stage_tasks_done",
    "gauge",
    TASK,
    "Of these, tasks that have ended well.",
)
SPARK_STAGE_TASK_FAILURES = Metric(
    "onyx_spark_stage_task_failures_total",
    "counter",
    TASK,
    "Tasks of Spark that failed in stages; Spark repeats them.",
)
SPARK_STAGE_ROWS_READ = Metric(
    "onyx_spark_stage_read_rows_total",
    "counter",
    TASK,
    "Rows that stages have read; unknown with Spark Connect.",
)
SPARK_STAGE_BYTES_READ = Metric(
    "onyx_spark_stage_read_bytes_total",
    "counter",
    TASK,
    "Bytes that stages have read.",
)
SPARK_STAGE_ROWS_WRITTEN = Metric(
    "onyx_spark_stage_written_rows_total",
    "counter",
    TASK,
    "Rows that stages have written, failed attempts included; unknown with Spark Connect.",
)
SPARK_STAGE_BYTES_WRITTEN = Metric(
    "onyx_spark_stage_written_bytes_total",
    "counter",
    TASK,
    "Bytes that stages have written, failed attempts included; unknown with Spark Connect.",
)
JOURNAL_BYTES = Metric(
    "onyx_source_journal_bytes", "gauge", TASK,
    "Bytes in the journals of an input that are not processed yet.",
)  # fmt: skip
SOURCE_ACKED = Metric(
    "onyx_source_acked_messages_total", "counter", TASK,
    "Messages that an input has acknowledged to its queue.",
)  # fmt: skip
SOURCE_FAILED = Metric(
    "onyx_source_failed_messages_total", "counter", TASK,
    "Messages that failed and that an input has given back to its queue, to come again.",
)  # fmt: skip
SOURCE_TERMINATED = Metric(
    "onyx_source_terminated_messages_total", "counter", TASK,
    "Messages that failed for good, as their queue has heard.",
)  # fmt: skip
SOURCE_REDELIVERED = Metric(
    "onyx_source_redelivered_messages_total", "counter", TASK,
    "Messages that a queue has given again and an input knew: they were not taken a second time.",
)  # fmt: skip
HTTP_REQUESTS = Metric(
    "onyx_http_requests_total", "counter", TASK,
    "Requests of an http output that were answered with 2xx.",
)  # fmt: skip
HTTP_RETRIES = Metric(
    "onyx_http_retries_total", "counter", TASK,
    "Tries of requests of an http output that failed and are repeated.",
)  # fmt: skip
HTTP_REFUSALS = Metric(
    "onyx_http_refusals_total",
    "counter",
    TASK,
    "Requests of an http output that were refused, or tried too often: each became dead letters, "
    "the answer to whoever sent it, or killed the job.",
)
WATERMARK = Metric(
    "onyx_task_watermark_seconds",
    "gauge",
    TASK,
    "Event time that all peers of the task in this process have reached, as Unix time; the "
    "lag is `time()` less this.",
    merge="least",
)
LATE_SEGMENTS = Metric(
    "onyx_window_late_segments_total", "counter", TASK,
    "Segments that came later than every window of the task allows.",
)  # fmt: skip
STATE_BYTES = Metric(
    "onyx_state_bytes", "gauge", RUN,
    "Bytes of the state logs of a task's peers, which are as large as the state or a few times "
    "that; on Spark, of the files that the last commit names.",
)  # fmt: skip
STATE_GROUPS = Metric(
    "onyx_state_groups", "gauge", RUN,
    "Groups that have a state, in each extent of a window, or entries that a processor has saved. "
    "There is none of a join, and none on Spark.",
)  # fmt: skip
STATE_TIMERS = Metric(
    "onyx_state_timers", "gauge", RUN,
    "Groups with a timer of a function, or timers of windows; absent where there can be none, and "
    "on Spark.",
)  # fmt: skip
STATE_SPILLED = Metric(
    "onyx_state_spilled_extents", "gauge", RUN,
    "States of groups, or rows of a join, that are on the local disk and not in memory; absent "
    "without `ONYX_STATE_MEMORY_EXTENTS_MAX`, and on Spark.",
)  # fmt: skip
JOIN_ROWS = Metric(
    "onyx_join_side_rows", "gauge", (*RUN, "side"),
    "Segments that a join of streams keeps of each side, those that nobody needs included until "
    "they go: `side` is the task that they come from. There is none on Spark.",
)  # fmt: skip
JOIN_BYTES = Metric(
    "onyx_join_side_bytes", "gauge", (*RUN, "side"),
    "Bytes of these segments, in memory and on the local disk. There is none on Spark.",
)  # fmt: skip
JOIN_EXPIRED = Metric(
    "onyx_join_expired_rows_total", "counter", TASK,
    "Segments that a join of streams has forgotten, because event time says that nothing meets "
    "them any more; what came too late is in `onyx_window_late_segments_total`. There is none on "
    "Spark.",
)  # fmt: skip
TABLE_ROWS = Metric(
    "onyx_table_rows", "gauge", RUN,
    "Rows of a table that this process has read: `task` is the table. There is none on Spark, "
    "whose processes come and go.",
)  # fmt: skip
TABLE_BYTES = Metric(
    "onyx_table_bytes", "gauge", RUN,
    "Bytes of these rows, about. There is none on Spark.",
)  # fmt: skip
TABLE_AGE = Metric(
    "onyx_table_age_seconds", "gauge", RUN,
    "Time since this process began to read what it has of a table. With `refresh` it stays below "
    "that and the time of a reading, while the source can be read. There is none on Spark.",
)  # fmt: skip
RECOVERY_READ = Metric(
    "onyx_state_recovery_read_bytes",
    "gauge",
    TASK,
    "State read so far by peers that recover it.",
)
RECOVERY_SIZE = Metric(
    "onyx_state_recovery_size_bytes",
    "gauge",
    TASK,
    "State to be read by peers that recover it.",
)
JOB_STALLED = Metric(
    "onyx_job_stalled_seconds",
    "gauge",
    (*TASK, "cause"),
    "Longest time for which a peer of the task in this process has had work and has not "
    "advanced; absent while all advance.",
)
LOG_APPLIED = Metric(
    "onyx_log_position_applied", "gauge", (),
    "Position of the last log entry applied.",
)  # fmt: skip
LOG_TAIL = Metric(
    "onyx_log_position_tail",
    "gauge",
    (),
    "Position of the last log entry read.",
)
LOG_STORED = Metric(
    "onyx_log_stored_bytes", "gauge", (),
    "Bytes that the tenancy holds in ZooKeeper, by the worker that collects garbage there.",
)  # fmt: skip
LOG_STORED_MAX = Metric(
    "onyx_log_stored_bytes_max", "gauge", (),
    "Bytes that the tenancy may hold in ZooKeeper (`ONYX_LOG_TENANCY_BYTES_MAX`).",
)  # fmt: skip
LOG_ENTRIES = Metric(
    "onyx_log_entries_total", "counter", ("fn",),
    "Log entries applied, by command.",
)  # fmt: skip
LOG_REJECTED = Metric(
    "onyx_log_entries_rejected_total",
    "counter",
    (),
    "Log entries that every worker rejects: of another version of Onyx, or with names that "
    "break the rule.",
)
LOG_APPLY_SECONDS = Metric(
    "onyx_log_apply_seconds",
    "histogram",
    ("fn",),
    "Time to apply one log entry, by command.",
    _APPLY_SECONDS,
)
REPLICA_VERSION = Metric(
    "onyx_replica_version", "gauge", (),
    "Version of the replica: equal on all workers when the log is idle.",
)  # fmt: skip
REPLICA_DIGEST = Metric(
    "onyx_replica_digest", "gauge", ("position",),
    "The first 48 bits of the hash of the replica after the newest entry whose position is "
    "divisible by 1,000: equal on all workers of a cluster.",
)  # fmt: skip
PEERS = Metric(
    "onyx_peers",
    "gauge",
    ("state",),
    "Virtual peers of this process, by state.",
)
SESSION_LOSSES = Metric(
    "onyx_zookeeper_session_losses_total", "counter", (),
    "ZooKeeper sessions lost; after each, the group joins again under new ids.",
)  # fmt: skip
ZOOKEEPER_REQUESTS = Metric(
    "onyx_zookeeper_requests_total", "counter", (),
    "Requests to ZooKeeper that were answered.",
)  # fmt: skip
ZOOKEEPER_SECONDS = Metric(
    "onyx_zookeeper_request_seconds_total", "counter", (),
    "Time from sending requests to ZooKeeper to their answers; by its requests, the latency.",
)  # fmt: skip
ZOOKEEPER_BYTES = Metric(
    "onyx_zookeeper_bytes_total", "counter", ("direction",),
    "Bytes between this process and ZooKeeper.",
)  # fmt: skip
ZOOKEEPER_WATCHES = Metric(
    "onyx_zookeeper_watches", "gauge", (),
    "Watches that this process has set.",
)  # fmt: skip
STREAM_BYTES = Metric(
    "onyx_grpc_stream_bytes_total",
    "counter",
    ("direction",),
    "Bytes of frames between groups.",
)
STREAM_FRAMES = Metric(
    "onyx_grpc_stream_messages_total", "counter", ("direction",),
    "Frames between groups.",
)  # fmt: skip
STREAM_RECONNECTS = Metric(
    "onyx_grpc_stream_reconnects_total",
    "counter",
    (),
    "Streams to other groups that were opened again after a break.",
)
CALLS_REFUSED = Metric(
    "onyx_grpc_calls_refused_total", "counter", ("reason",),
    "Calls on the port for other groups that were refused, by reason.",
)  # fmt: skip
HTTP_SERVED = Metric(
    "onyx_http_served_requests_total",
    "counter",
    ("code",),
    "Requests of clients over HTTP, by how they were answered.",
)
HTTP_SERVED_SECONDS = Metric(
    "onyx_http_served_seconds",
    "histogram",
    (),
    "Time from the head of a request over HTTP to its answer.",
    _SERVED_SECONDS,
)
REQUEST_SECONDS = Metric(
    "onyx_request_seconds", "histogram", (*RUN, "transport", "level", "status"),
    "Time from a request of a client to its answer by this process: `task` is the input. All "
    "requests over gRPC to inputs that no worker knows are those of one job `-`; over HTTP they "
    "are only in `onyx_http_served_requests_total`.",
    _SERVED_SECONDS,
)  # fmt: skip
JOB_INFO = Metric(
    "onyx_job_info", "gauge", ("job", "job_id", "guarantee"),
    "1 for each job that a peer of this process works on.",
)  # fmt: skip
BUILD_INFO = Metric(
    "onyx_build_info",
    "gauge",
    ("version", "python"),
    "1; version of Onyx and Python.",
)

METRICS = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
"""All rows above, in their order."""
MEMORY_KILLS = Metric(
    "onyx_memory_kills_total", "counter", (),
    "Processes of this container, also of Spark, killed for want of memory; absent without one.",
)  # fmt: skip
"""Counted by the kernel; see `memory_kills`."""
ZOOKEEPER_DATA = Metric(
    "onyx_zookeeper_data_bytes", "gauge", (),
    "Data that a server of `onyx zookeeper` keeps in memory, of all tenancies.",
)  # fmt: skip
ZOOKEEPER_HEAP = Metric(
    "onyx_zookeeper_heap_bytes", "gauge", (),
    "Largest heap of a server of `onyx zookeeper` (`ONYX_ZOOKEEPER_SERVER_HEAP_MIB`).",
)  # fmt: skip
ZOOKEEPER_OUTSTANDING = Metric(
    "onyx_zookeeper_outstanding_requests", "gauge", (),
    "Requests that a server of `onyx zookeeper` has taken and not answered.",
)  # fmt: skip
ZOOKEEPER_SERVED = Metric(
    "onyx_zookeeper_served_requests_total", "counter", (),
    "Requests that a server of `onyx zookeeper` has answered.",
)  # fmt: skip
ZOOKEEPER_SERVED_SECONDS = Metric(
    "onyx_zookeeper_served_request_seconds_total", "counter", (),
    "Time that a server of `onyx zookeeper` took for them; by its requests, the latency.",
)  # fmt: skip
ZOOKEEPER_SYNCS = Metric(
    "onyx_zookeeper_disk_syncs_total", "counter", (),
    "Times that a server of `onyx zookeeper` waited until its disk has what it wrote.",
)  # fmt: skip
ZOOKEEPER_SYNC_SECONDS = Metric(
    "onyx_zookeeper_disk_sync_seconds_total", "counter", (),
    "Time of these waits.",
)  # fmt: skip
ZOOKEEPER_DISK_FREE = Metric(
    "onyx_zookeeper_disk_free_bytes", "gauge", (),
    "Room that is left where a server of `onyx zookeeper` has its data.",
)  # fmt: skip
ZOOKEEPER_DISK = Metric(
    "onyx_zookeeper_disk_bytes", "gauge", (),
    "All the room that there is.",
)  # fmt: skip
OF_ZOOKEEPER = (
    ZOOKEEPER_DATA, ZOOKEEPER_HEAP, ZOOKEEPER_OUTSTANDING, ZOOKEEPER_SERVED,
    ZOOKEEPER_SERVED_SECONDS, ZOOKEEPER_SYNCS, ZOOKEEPER_SYNC_SECONDS, ZOOKEEPER_DISK_FREE,
    ZOOKEEPER_DISK,
)  # fmt: skip
"""What a server of `onyx zookeeper` shows."""
EXPORTED = (*METRICS, MEMORY_KILLS, *OF_ZOOKEEPER)
"""All that workers and servers of ZooKeeper show."""
