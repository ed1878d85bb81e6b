"""Where the time of one batch goes: a few looks at the clock a batch, never one a segment.

Reading, applying and writing follow each other, so each mark ends one of them and begins the next.
Time during which a destination refuses is no work: it is reported as back-pressure instead.
"""

from __future__ import annotations

from onyx.base.seams import Clock
from onyx.telemetry.catalog import BACKPRESSURED_SECONDS
from onyx.telemetry.interface import TaskMetrics


class BatchTimer:
    """The times of batches of one task. `begin`, `read`, `applied`, `written` in this order;
    `report` at the end."""

    __slots__ = (
        "_apply_s",
        "_began_cpu_s",
        "_clock",
        "_cpu_s",
        "_held",
        "_mark_s",
        "_read_s",
        "_write_s",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mark_s = self._read_s = self._apply_s = self._write_s = 0.0
        self._cpu_s = 0.0
        self._began_cpu_s: float | None = None
        self._held = False

    def begin(self, cpu: bool = False) -> None:
        """A batch is about to be read.

        Args:
            cpu: measure its CPU time as well, which takes two calls of the kernel.
        """
        self._mark_s = self._clock.monotonic_s()
        self._began_cpu_s = self._clock.thread_cpu_s() if cpu else None
        self._held = False

    def read(self) -> None:
        """The batch has been read."""
        self._read_s = self._lap_s()

    def applied(self) -> None:
        """The function has been applied."""
        self._apply_s = self._lap_s()

    def refused(self, metrics: TaskMetrics) -> None:
        """A destination has no room (still)."""
        self._handed_over(metrics)
        self._held = True

    def written(self, metrics: TaskMetrics) -> None:
        """Every destination has taken its part."""
        self._handed_over(metrics)

    def _handed_over(self, metrics: TaskMetrics) -> None:
        if self._held:
            metrics.add(BACKPRESSURED_SECONDS, self._lap_s())
        else:
            self._write_s = self._lap_s()
            if self._began_cpu_s is not None:
                self._cpu_s = self._clock.thread_cpu_s() - self._began_cpu_s

    def report(self, metrics: TaskMetrics, read: int, written: int) -> None:
        """Report the batch: segments read and written, and where its time went."""
        metrics.batch(read, written, self._read_s, self._apply_s, self._write_s)

    def busy_s(self, reading: bool) -> float:
        """Spent on the batch, without back-pressure.

        Args:
            reading: count reading it too. A source may wait in it for what is not there yet.
        """
        return (self._read_s if reading else 0.0) + self._apply_s + self._write_s

    @property
    def cpu_s(self) -> float | None:
        """Work of this thread on the batch, by the processor; None if that was not measured."""
        return None if self._began_cpu_s is None else self._cpu_s

    def _lap_s(self) -> float:
        before_s, self._mark_s = self._mark_s, self._clock.monotonic_s()
        return self._mark_s - before_s
