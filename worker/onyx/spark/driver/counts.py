"""Counts of a query as metrics of the tasks of its job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from onyx.ids import TaskName
from onyx.spark.driver.request import TaskCounts
from onyx.telemetry.catalog import DEAD_LETTERS, LATE_SEGMENTS, RETRIES, SOURCE_OFFSET, UNMATCHED
from onyx.telemetry.interface import TaskMetrics

NOTHING = TaskCounts()


def added(one: Mapping[str, TaskCounts], other: Mapping[str, TaskCounts]) -> dict[str, TaskCounts]:
    """The counts of two queries together."""
    return {
        task: one.get(task, NOTHING).plus(other.get(task, NOTHING))
        for task in sorted({*one, *other})
    }


class Counts:
    """The counts of the tasks of one job. A query that is run again counts again, as replays do on
    peers."""

    def __init__(self, tasks: Iterable[str], metrics: Callable[[TaskName], TaskMetrics]) -> None:
        """`metrics`: where a task reports."""
        self._metrics = {task: metrics(TaskName(task)) for task in tasks}
        self._seen: dict[str, TaskCounts] = {}
        self._published: Mapping[str, int] = {}

    def begin(self, published: Mapping[str, int]) -> None:
        """A query begins, and its counts with it.

        Args:
            published: what each input has read whose results are published.
        """
        for task, segments in published.items():
            here = segments - self._published.get(task, 0)
            again = self._seen.get(task, NOTHING).read - here
            if again > 0:
                self._metrics[task].add(RETRIES, again)
        self._published = published
        self._seen.clear()

    def report(self, tasks: Mapping[str, TaskCounts]) -> None:
        """Report what is new of the counts of the query."""
        for task, counts in tasks.items():
            metrics, seen = self._metrics.get(task), self._seen.get(task, NOTHING)
            if metrics is None or counts == seen:
                continue
            self._seen[task] = counts
            read, written = counts.read - seen.read, counts.written - seen.written
            metrics.batch(max(0, read), max(0, written))
            metrics.add(DEAD_LETTERS, max(0, counts.failed - seen.failed))
            metrics.add(UNMATCHED, max(0, counts.unmatched - seen.unmatched))
            metrics.add(LATE_SEGMENTS, max(0, counts.late - seen.late))
            for metric, text in (
                (DEAD_LETTERS, counts.first_failed),
                (UNMATCHED, counts.first_unmatched),
            ):
                if text:
                    metrics.note(metric, partial(str, text))

    def complete(self, read: Mapping[str, int]) -> None:
        """The result is published: what the inputs have read is completed."""
        for task, segments in read.items():
            self._metrics[task].set(SOURCE_OFFSET, segments)

    def close(self) -> None:
        """The driver leaves the job."""
        for metrics in self._metrics.values():
            metrics.close()
