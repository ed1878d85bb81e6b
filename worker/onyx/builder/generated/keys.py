"""Keys of the parts of a job, with their types: docs/reference says what each means.

Generated from `onyx.model` by `python -m onyx.builder.generate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from onyx.builder.types import Amount, Fn, Time


class SparkKeys(TypedDict, total=False):
    """Keys of `spark`."""

    master: str
    spark_conf: Mapping[str, str]


class UpgradeKeys(TypedDict, total=False):
    """Keys of `upgrade`."""

    from_job: str
    tasks: Mapping[str, Literal["carry-over", "initialize"]]
    windows: Mapping[str, Literal["initialize"]]
    savepoint: str


class FailurePolicyKeys(TypedDict, total=False):
    """Keys of `failurePolicy`."""

    retries: int
    backoff_seconds: int


class JobKeys(TypedDict, total=False):
    """Keys of a job."""

    task_scheduler: Literal["balanced", "percentage", "colocated"]
    local_only: bool
    guarantee: Literal["at-most-once", "at-least-once", "exactly-once"]
    engine: Literal["peers", "spark"]
    spark: SparkKeys
    max_drift: Amount
    upgrade: UpgradeKeys
    ack_returns: Mapping[str, Fn]
    percentage: int
    priority: int
    metadata: Mapping[str, Any]
    acker_percentage: int
    ackers: int
    acker_exempt_input_tasks: bool
    acker_exempt_output_tasks: bool
    acker_exempt_tasks: Sequence[str]
    desired_state: Literal["Running", "Suspended", "Stopped"]
    restart_nonce: int
    upgrade_policy: Literal["Drain", "KeepState"]
    ttl_seconds_after_finished: int
    failure_policy: FailurePolicyKeys
    cluster_ref: str


class LookupJoinKeys(TypedDict, total=False):
    """Keys of `join`."""

    key: str | Sequence[str]
    table: str
    state: str
    durable: bool
    how: Literal["left", "inner"]
    default: Mapping[str, Any]
    columns: Sequence[str]
    under: str
    at: str


class JoinSideKeys(TypedDict, total=False):
    """Keys of `left` and `right`."""

    task: str
    key: str | Sequence[str]
    at: str
    prefix: str


class WithinKeys(TypedDict, total=False):
    """Keys of `within`."""

    before: Time
    after: Time


class SharedKeys(TypedDict, total=False):
    """Keys that tasks of all types have."""

    batch_size: int
    fn: Fn
    params: Sequence[str]
    options: Mapping[str, Any]
    medium: str
    batch_timeout: Time
    batch_fn: bool
    batch_format: Literal["dicts", "arrow"]
    schema: Mapping[str, str]
    required: Sequence[str]
    cooperative: bool
    min_peers: int
    max_peers: int
    n_peers: int
    required_tags: Sequence[str]
    percentage: int
    uniqueness_key: str
    deduplicate: bool
    doc: str


class InputKeys(SharedKeys, total=False):
    """Keys of a task of type input."""

    dead_letter: str
    first_failures_max: int
    guarantee: Literal["at-most-once", "at-least-once"]
    retry_mode: Literal["individual", "all-after", "none"]
    max_pending: int
    pending_timeout: Time
    input_retry_timeout: Time
    checkpoint_segments: int
    segments_per_second_max: int
    assign_watermark_fn: Fn
    watermark_key: str
    allowed_disorder: Amount
    idle_timeout: Time
    when_idle: Literal["wait", "clock"]


class FunctionKeys(SharedKeys, total=False):
    """Keys of a task of type function."""

    processor: Fn
    sql: str
    sql_timeout: Time
    spark_sql: str
    join: LookupJoinKeys
    tables: Sequence[str]
    group_by_key: str | Sequence[str]
    group_by_fn: Fn
    on_missing_key: Literal["fail", "group"]
    flux_policy: Literal["kill", "continue", "recover"]
    state: Mapping[str, str]
    state_ttl: Time
    on_timer: Fn
    loop_to: str
    laps_max: int
    dead_letter: str
    first_failures_max: int
    anchored: bool


class ReduceKeys(SharedKeys, total=False):
    """Keys of a task of type reduce."""

    group_by_key: str | Sequence[str]
    group_by_fn: Fn
    on_missing_key: Literal["fail", "group"]
    flux_policy: Literal["kill", "continue", "recover"]
    combine: bool
    dead_letter: str
    first_failures_max: int


class OutputKeys(SharedKeys, total=False):
    """Keys of a task of type output."""

    group_by_key: str | Sequence[str]
    group_by_fn: Fn
    on_missing_key: Literal["fail", "group"]
    flux_policy: Literal["kill", "continue", "recover"]


class TableKeys(SharedKeys, total=False):
    """Keys of a task of type table."""

    key: str | Sequence[str]
    version_key: str
    refresh: Time
    partitioned: bool


class JoinKeys(SharedKeys, total=False):
    """Keys of a task of type join."""

    flux_policy: Literal["kill", "continue", "recover"]
    left: JoinSideKeys
    right: JoinSideKeys
    how: Literal["inner", "left", "right", "outer", "asof"]
    within: WithinKeys
    range: Time
    late_to: str
    dead_letter: str
    first_failures_max: int


class TaskKeys(SharedKeys, total=False):
    """Keys of a task of any type."""

    processor: Fn
    sql: str
    sql_timeout: Time
    spark_sql: str
    join: LookupJoinKeys
    tables: Sequence[str]
    key: str | Sequence[str]
    version_key: str
    refresh: Time
    partitioned: bool
    group_by_key: str | Sequence[str]
    group_by_fn: Fn
    on_missing_key: Literal["fail", "group"]
    flux_policy: Literal["kill", "continue", "recover"]
    left: JoinSideKeys
    right: JoinSideKeys
    how: Literal["inner", "left", "right", "outer", "asof"]
    within: WithinKeys
    range: Time
    late_to: str
    combine: bool
    state: Mapping[str, str]
    state_ttl: Time
    on_timer: Fn
    loop_to: str
    laps_max: int
    dead_letter: str
    first_failures_max: int
    guarantee: Literal["at-most-once", "at-least-once"]
    anchored: bool
    retry_mode: Literal["individual", "all-after", "none"]
    max_pending: int
    pending_timeout: Time
    input_retry_timeout: Time
    checkpoint_segments: int
    segments_per_second_max: int
    assign_watermark_fn: Fn
    watermark_key: str
    allowed_disorder: Amount
    idle_timeout: Time
    when_idle: Literal["wait", "clock"]


class WindowKeys(TypedDict, total=False):
    """Keys of a window."""

    batch_format: Literal["dicts", "arrow"]
    engine: Literal["peers", "spark"]
    window_key: str
    min_value: int
    session_key: str
    range: Amount
    slide: Amount
    init: Any
    timeout_gap: Amount
    allowed_lateness: Amount
    late_to: str
    storage_strategy: Sequence[Literal["incremental", "ordered-log", "extents"]]
    options: Mapping[str, Any]
    doc: str


class TriggerKeys(TypedDict, total=False):
    """Keys of a trigger."""

    id: str
    refinement: Fn
    sync: Fn
    emit: Fn
    batch_format: Literal["dicts", "arrow"]
    fire_all_extents: bool
    fire_at_end: Literal["always", "changed", "never"]
    threshold: Amount
    period: Amount
    pred: Fn
    watermark_percentage: float
    delay: Amount
    state_context: Sequence[Literal["trigger-state", "window-state"]]
    post_evictor: Sequence[Literal["all", "none"]]
    options: Mapping[str, Any]
    doc: str


class FlowConditionKeys(TypedDict, total=False):
    """Keys of a flow condition."""

    batch_format: Literal["dicts", "arrow"]
    options: Mapping[str, Any]
    predicate_errors_to: str | Sequence[str]
    exclude_keys: Sequence[str]
    short_circuit: bool
    thrown_exception: bool
    post_transform: Fn
    anchored: bool
    action: Literal["retry"]
    max_retries: int
    doc: str


class LifecycleKeys(TypedDict, total=False):
    """Keys of a lifecycle."""

    options: Mapping[str, Any]
    doc: str
