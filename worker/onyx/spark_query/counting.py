"""What the tasks of a query have read, written and left out, counted in one process of Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from onyx.spark.driver.request import TaskCounts
from onyx.telemetry.catalog import DEAD_LETTERS, LATE_SEGMENTS, UNMATCHED, WITHOUT_ROW, Metric
from onyx.telemetry.interface import TaskMetrics


class Tally(TaskMetrics):
    """Counts segments that do not go on, or find nothing; the rest is for peers."""

    __slots__ = ("counts", "notes")

    def __init__(self) -> None:
        counted = (DEAD_LETTERS, UNMATCHED, LATE_SEGMENTS, WITHOUT_ROW)
        self.counts = dict.fromkeys(counted, 0)
        self.notes: dict[Metric, str] = {}

    def add(self, metric: Metric, amount: float = 1) -> None:
        """Add to a counter."""
        if metric in self.counts:
            self.counts[metric] += int(amount)

    def note(self, metric: Metric, text: Callable[[], str]) -> None:
        """What the first of those is that a counter counts; made only if nothing is known yet."""
        if metric not in self.notes:
            self.notes[metric] = text()


class Counting:
    """The counts of the tasks of a fragment."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()
        """By task, segments that it has read."""
        self.written: Counter[str] = Counter()
        """By task, segments that it has written, or passed on."""
        self.metrics: dict[str, TaskMetrics] = {}
        """Where the tasks report that have a program here."""

    def counts(self) -> dict[str, TaskCounts]:
        """By task, what it has done."""
        return {task: self._of(task) for task in {**self.metrics, **self.read}}

    def _of(self, task: str) -> TaskCounts:
        tally = self.metrics.get(task)
        if not isinstance(tally, Tally):
            return TaskCounts(self.read[task], self.written[task])
        counts, notes = tally.counts, tally.notes
        return TaskCounts(
            self.read[task],
            self.written[task],
            counts[DEAD_LETTERS],
            counts[UNMATCHED],
            counts[LATE_SEGMENTS],
            notes.get(DEAD_LETTERS, ""),
            notes.get(UNMATCHED, ""),
            counts[WITHOUT_ROW],
        )


def total(counts: Sequence[dict[str, TaskCounts]]) -> dict[str, TaskCounts]:
    """The counts of several processes together."""
    found: dict[str, TaskCounts] = {}
    for each in counts:
        for task, its in each.items():
            found[task] = found.get(task, TaskCounts()).plus(its)
    return found
