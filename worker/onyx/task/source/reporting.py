"""How far a source is, as its metrics say it."""

from __future__ import annotations

from onyx.task.source.source import Source
from onyx.telemetry.catalog import SOURCE_OFFSET, SOURCE_PENDING
from onyx.telemetry.interface import TaskMetrics


def report_progress(source: Source, metrics: TaskMetrics) -> None:
    """Report what is in flight and what is processed, of all partitions together."""
    metrics.set(SOURCE_PENDING, source.in_flight)
    metrics.set(SOURCE_OFFSET, position_of(source))


def position_of(source: Source) -> int:
    """Positions up to which everything is processed, of all partitions together."""
    here = sum(each.position for each in source.partitions.values())
    return here + sum(source.exhausted.values())
