"""How far the recovery of a peer's state has come, as metrics."""

from __future__ import annotations

from onyx.telemetry.catalog import RECOVERY_READ, RECOVERY_SIZE
from onyx.telemetry.interface import TaskMetrics


def report_recovery(metrics: TaskMetrics, done_bytes: int, size_bytes: int) -> None:
    """So much of the state has been read, on another thread, while the task waits for it."""
    metrics.set(RECOVERY_READ, done_bytes)
    metrics.set(RECOVERY_SIZE, size_bytes)
