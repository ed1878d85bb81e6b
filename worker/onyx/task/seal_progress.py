"""How far the seal of an output, or a stage of Spark, has come: metrics of a task.

Spark says what a stage has done since its start, and begins anew with each attempt; counters of
metrics only grow. So the latest progress is kept, and what is new in it is added.
"""

from __future__ import annotations

import msgspec

from onyx.plugins.protocol import SealProgress
from onyx.telemetry.catalog import (
    SPARK_STAGE_BYTES_READ,
    SPARK_STAGE_BYTES_WRITTEN,
    SPARK_STAGE_FAILURES,
    SPARK_STAGE_ROWS_READ,
    SPARK_STAGE_ROWS_WRITTEN,
    SPARK_STAGE_SECONDS,
    SPARK_STAGE_TASK_FAILURES,
    SPARK_STAGE_TASKS,
    SPARK_STAGE_TASKS_DONE,
)
from onyx.telemetry.interface import TaskMetrics


class LatestProgress(msgspec.Struct):
    """The progress of a seal that runs."""

    value: SealProgress | None = None


def report_seal(latest: LatestProgress, metrics: TaskMetrics, progress: SealProgress) -> None:
    """Note progress. Counters grow by what is new; a smaller number is that of a new attempt."""
    before, latest.value = latest.value or SealProgress(), progress
    if progress.tasks_done < before.tasks_done:
        before = SealProgress()
    metrics.set(SPARK_STAGE_TASKS, progress.tasks)
    metrics.set(SPARK_STAGE_TASKS_DONE, progress.tasks_done)
    for metric, now, then in (
        (SPARK_STAGE_TASK_FAILURES, progress.tasks_failed, before.tasks_failed),
        (SPARK_STAGE_ROWS_READ, progress.rows_read, before.rows_read),
        (SPARK_STAGE_BYTES_READ, progress.bytes_read, before.bytes_read),
        (SPARK_STAGE_ROWS_WRITTEN, progress.rows_written, before.rows_written),
        (SPARK_STAGE_BYTES_WRITTEN, progress.bytes_written, before.bytes_written),
    ):
        if now > then:
            metrics.add(metric, now - then)


def count_stage_run(
    latest: LatestProgress, metrics: TaskMetrics, seconds: float, ended_well: bool
) -> None:
    """Count a run of a stage. What it has done says nothing of the next one."""
    latest.value = None
    if ended_well:
        metrics.observe(SPARK_STAGE_SECONDS, seconds)
    else:
        metrics.add(SPARK_STAGE_FAILURES)
