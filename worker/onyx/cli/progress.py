"""How far the job of `onyx run` is: counts that outlive its worker processes, as a table.

The supervisor of the processes holds the memory in which their tasks count (`kept_counts`), so what
a process did before it was killed is counted too. Metrics of a process end with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace
from rich.table import Table

from onyx.model.job import Job
from onyx.model.workflow import topological_order
from onyx.outcomes import NOTHING, TaskTotals, remarks

Totals = Mapping[str, TaskTotals]
"""By task."""


class TaskProgress(msgspec.Struct, frozen=True):
    """Totals of one task over all its peers, and its present speed."""

    task: str
    segments_in: int
    segments_out: int
    completed: int
    retried: int
    errors: int
    segments_per_s: float
    dead_letters: int = 0
    unmatched: int = 0
    late: int = 0
    first_dead_letter: str = ""


class Progress:
    """Collects the figures of one job; `sample` before asking for rows.

    Args:
        job: that runs.
        read: the totals of its tasks now.
    """

    def __init__(self, job: Job, read: Callable[[], Totals]) -> None:
        self._job = job
        self._read = read
        self._tasks = topological_order(job.workflow)
        self._inputs = {entry.name for entry in job.catalog if entry.type == "input"}
        self._started_s = time.monotonic()
        self._totals: Totals = {}
        self._before: dict[str, int] = {}
        self._at_s = time.monotonic()
        self._speed: dict[str, float] = {}

    def sample(self) -> None:
        """Read the totals."""
        self._totals = self._read()
        now_s = time.monotonic()
        elapsed_s, self._at_s = max(now_s - self._at_s, 1e-3), now_s
        for task in self._tasks:
            total = _worked(self._of(task))
            self._speed[task] = (total - self._before.get(task, 0)) / elapsed_s
            self._before[task] = total

    def complete(self, positions: Mapping[str, int]) -> None:
        """The job has completed: so many positions did each of these inputs have. What was read
        beyond that was read again."""
        settled = dict(self._totals)
        for task, count in positions.items():
            its = self._of(task)
            again = max(its.segments_in - count, 0)
            settled[task] = replace(its, completed=count, retried=again)
        self._totals = settled

    @property
    def dead_letters(self) -> int:
        """Segments of all tasks that went to dead letters."""
        return sum(each.dead_letters for each in self._totals.values())

    def remarks(self) -> list[str]:
        """What became of segments that did not go on, in lines."""
        return remarks(self._job, self._totals)

    def rows(self, average: bool = False) -> list[TaskProgress]:
        """With the speed of the last interval, or of the whole time."""
        elapsed_s = self._at_s - self._started_s
        rows = []
        for task in self._tasks:
            its = self._of(task)
            speed = self._speed.get(task, 0.0)
            if average and elapsed_s > 0:
                speed = self._before.get(task, 0) / elapsed_s
            rows.append(
                TaskProgress(
                    task,
                    its.segments_in,
                    its.segments_out,
                    its.completed,
                    its.retried,
                    its.errors,
                    speed,
                    its.dead_letters,
                    its.unmatched,
                    its.late,
                    its.first_dead_letter,
                )
            )
        return rows

    def line(self) -> str:
        """How far the inputs are, in a few words for a log."""
        inputs = [row for row in self.rows() if row.task in self._inputs]
        completed = sum(row.completed for row in inputs)
        read, speed = sum(row.segments_out for row in inputs), sum(r.segments_per_s for r in inputs)
        return f"{read:,} segments read, {completed:,} completed, {speed:,.0f}/s"

    def table(self, title: str, average: bool = False) -> Table:
        """What a person watches. Only inputs complete and retry segments."""
        table = Table("task", title=title, title_justify="left")
        for heading in ("in", "out", "completed", "retried", "segments/s"):
            table.add_column(heading, justify="right")
        for row in self.rows(average):
            source = row.task in self._inputs
            table.add_row(
                row.task,
                f"{row.segments_in:,}",
                f"{row.segments_out:,}",
                f"{row.completed:,}" if source else "",
                f"{row.retried:,}" if source else "",
                f"{row.segments_per_s:,.0f}",
            )
        return table

    def _of(self, task: str) -> TaskTotals:
        return self._totals.get(task, NOTHING)


def _worked(totals: TaskTotals) -> int:
    return totals.segments_in or totals.segments_out
