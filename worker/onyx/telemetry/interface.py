"""The seam between what is measured and Prometheus; by itself it drops all but what batches count.

The classes here import no library and do nothing: they are both the interface and what a worker
without a metrics endpoint uses. `metrics.py` implements them for Prometheus.

Every metric is a row of the catalog, and is given as that row. So a new metric needs no method
here. Only `batch` and `completed` have their own, because they are called for every batch
(`tallies`). A hook is called once a batch or entry, never once a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onyx.telemetry.catalog import BACKPRESSURED_SECONDS, Metric
from onyx.telemetry.tallies import BatchTally, Root

EXAMPLE_CHARACTERS_MAX = 128
"""Names and values of the labels of an example: OpenMetrics allows no more."""
NO_EXAMPLE: Mapping[str, str] = {}


def in_example(text: str, characters: int) -> str:
    """The end of a text as the value of a label, in so many characters. What cannot be printed is
    left out, and what parsers of exemplars stumble over."""
    return "".join(each for each in text if each.isprintable() and each not in '"\\')[-characters:]


class TaskMetrics:
    """Metrics with the labels (job, task), of one virtual peer. Used by one thread at a time."""

    __slots__ = ()

    tally: BatchTally | None = None
    """What it counts of batches, if it does."""

    def batch(
        self,
        read: int,
        written: int,
        read_s: float = 0.0,
        apply_s: float = 0.0,
        write_s: float = 0.0,
    ) -> None:
        """A batch is done: segments taken and emitted, and the seconds spent on each stage. A
        stage that did not happen has 0."""

    def completed(self, seconds: float, segments: int, root: Root | None = None) -> None:
        """The trees of so many segments of an input are processed, so long after they were read;
        `root` is one of these."""

    def add(self, metric: Metric, amount: float = 1) -> None:
        """Add to a counter."""

    def set(self, metric: Metric, value: float) -> None:
        """Set the value of this peer in a gauge; `Metric.merge` says what becomes of it."""

    def observe(self, metric: Metric, value: float) -> None:
        """Add a value to a histogram."""

    def note(self, metric: Metric, text: Callable[[], str]) -> None:
        """What the first of those is that a counter counts; made only if nothing is known yet."""

    def close(self) -> None:
        """The peer leaves the task. Idempotent."""


NULL_TASK = TaskMetrics()


class TalliedTask(TaskMetrics):
    """Metrics of a virtual peer where those of the group do not count what is measured of batches:
    it is counted here, and all goes on to them."""

    __slots__ = ("_its", "tally")

    def __init__(self, its: TaskMetrics = NULL_TASK) -> None:
        self._its = its
        self.tally: BatchTally = BatchTally()

    def batch(
        self,
        read: int,
        written: int,
        read_s: float = 0.0,
        apply_s: float = 0.0,
        write_s: float = 0.0,
    ) -> None:
        """A batch is done: segments taken and emitted, and the seconds spent on each stage."""
        self.tally.batch(read, written, read_s, apply_s, write_s)
        self._its.batch(read, written, read_s, apply_s, write_s)

    def completed(self, seconds: float, segments: int, root: Root | None = None) -> None:
        """The trees of so many segments of an input are processed, so long after they were read;
        `root` is one of these."""
        self.tally.complete.observe(seconds, segments, root)
        self._its.completed(seconds, segments, root)

    def add(self, metric: Metric, amount: float = 1) -> None:
        """Add to a counter."""
        if metric is BACKPRESSURED_SECONDS:
            self.tally.held_s += amount
        self._its.add(metric, amount)

    def set(self, metric: Metric, value: float) -> None:
        """Set the value of this peer in a gauge."""
        self._its.set(metric, value)

    def observe(self, metric: Metric, value: float) -> None:
        """Add a value to a histogram."""
        self._its.observe(metric, value)

    def note(self, metric: Metric, text: Callable[[], str]) -> None:
        """What the first of those is that a counter counts."""
        self._its.note(metric, text)

    def close(self) -> None:
        """The peer leaves the task."""
        self._its.close()


class GroupMetrics:
    """Metrics of a worker process. Safe to use from several threads.

    `labels` are the values of `Metric.labels`, in their order.
    """

    __slots__ = ()

    def task(self, job: str, task: str) -> TaskMetrics:
        """For one virtual peer on one task; `job` and `task` are names. Close it when it leaves."""
        return NULL_TASK

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        """Add to a counter."""

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""

    def observe(
        self, metric: Metric, value: float, *labels: str, example: Mapping[str, str] = NO_EXAMPLE
    ) -> None:
        """Add a value to a histogram; `example` says of what it is, in `EXAMPLE_CHARACTERS_MAX`."""

    def remove(self, metric: Metric, *labels: str) -> None:
        """End a series that was set."""

    def replace(self, metric: Metric, series: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge to exactly these series, by their labels: all others of it end."""

    def text(self) -> str:
        """All of them, as Prometheus has them."""
        return ""


NULL_GROUP = GroupMetrics()
