"""How far the job of `onyx run` is: counts that outlive its worker processes, as a table.

The supervisor of the processes holds the memory in which their tasks count (`kept_counts`), so what
a process did before it was killed is counted too. Metrics of a process end with it.

A speed is that of the last seconds, and not since the last look: tasks count when a batch is done,
so that between two looks there is often nothing. With batches that take longer than that it is the
speed of the last half minute. At the end it is that of the work: from the last look that saw none
of any task to the last one that saw more of this task. The start of workers, and what others of the
job do afterwards, are no speed of a task.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Mapping

import msgspec
from msgspec.structs import replace
from rich.table import Table

from onyx.model.job import Job
from onyx.model.workflow import topological_order
from onyx.reports.outcomes import (
    NOTHING,
    TaskTotals,
    all_failed,
    made_nothing,
    remarks,
    segments_in_words,
)

Totals = Mapping[str, TaskTotals]
"""By task."""
SPEED_S = 10.0
"""The time of which a speed is, if anything was counted in it."""
SPEED_MAX_S = 30.0
"""The time of which it is otherwise."""
CLOCK_S = 1e-3
"""The shortest time of which a speed is."""


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


class JobProgress:
    """Collects the figures of one job; `sample` before asking for rows.

    Args:
        job: that runs.
        read: the totals of its tasks now.
        clock: the seconds that have passed.
    """

    def __init__(
        self,
        job: Job,
        read: Callable[[], Totals],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._read = read
        self._tasks = topological_order(job.workflow)
        self._inputs = {entry.name for entry in job.catalog if entry.type == "input"}
        self._clock = clock
        self._started_s = clock()
        self._totals: Totals = {}
        self._completed: Mapping[str, int] = {}
        self._samples: deque[tuple[float, Totals]] = deque([(self._started_s, {})])
        self._grew_s: dict[str, float] = {}
        """By task, when a look last saw more of it."""

    def sample(self, completed: Mapping[str, int]) -> None:
        """Read the totals.

        Args:
            completed: positions of inputs, as far as they are known; else what was known before.
        """
        self._completed = {**self._completed, **completed}
        totals = dict(self._read())
        for task, count in self._completed.items():
            totals[task] = replace(totals.get(task, NOTHING), completed=count)
        now_s = self._clock()
        for task in self._tasks:
            if _worked(totals.get(task, NOTHING)) > _worked(self._of(task)):
                self._grew_s[task] = now_s
        if not self._grew_s:
            self._started_s = now_s
        self._totals = totals
        self._samples.append((now_s, self._totals))
        while self._samples[1][0] <= now_s - SPEED_MAX_S:
            self._samples.popleft()  # one that is as old stays

    def settle(self) -> None:
        """The job has completed: what its inputs read beyond what they have was read again."""
        settled = dict(self._totals)
        for task, count in self._completed.items():
            its = self._of(task)
            again = max(its.segments_in - count, 0)
            settled[task] = replace(its, retried=again, taken_over=0)
        self._totals = settled

    @property
    def dead_letters(self) -> int:
        """Segments of all tasks that went to dead letters."""
        return sum(each.dead_letters for each in self._totals.values())

    @property
    def all_failed(self) -> list[str]:
        """The tasks of which every segment went to dead letters, if no output has got another."""
        return all_failed(self._job, self._totals)

    def remarks(self, unwritten: Container[str] = ()) -> list[str]:
        """What became of segments that did not go on, in lines; `unwritten` as of `remarks`."""
        lines = remarks(self._job, self._totals, unwritten=unwritten)
        return lines + made_nothing(self._job, self._totals)

    def rows(self, average: bool = False) -> list[TaskProgress]:
        """The figures of each task, with its speed of the last seconds or of the whole time."""
        rows = []
        for task in self._tasks:
            its = self._of(task)
            speed = self._speed(task)
            if average and task in self._grew_s:
                speed = _worked(its) / max(self._grew_s[task] - self._started_s, CLOCK_S)
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
        """How far the inputs are, in a few words for a log. The speed is theirs; when they wait for
        others, that of the fastest task."""
        rows = self.rows()
        inputs = [row for row in rows if row.task in self._inputs]
        completed = sum(row.completed for row in inputs)
        read, speed = sum(row.segments_out for row in inputs), sum(r.segments_per_s for r in inputs)
        speed = speed or max(row.segments_per_s for row in rows)
        return f"{segments_in_words(read)} read, {completed:,} completed, {_rate(speed)}/s"

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
                _rate(row.segments_per_s),
            )
        return table

    def _of(self, task: str) -> TaskTotals:
        return self._totals.get(task, NOTHING)

    def _speed(self, task: str) -> float:
        now_s, totals = self._samples[-1]
        now = totals.get(task, NOTHING)
        for time_s in (SPEED_S, SPEED_MAX_S):
            old = (each for each in reversed(self._samples) if each[0] <= now_s - time_s)
            at_s, before = next(old, self._samples[0])
            worked = _worked(now.since(before.get(task, NOTHING)))
            if worked > 0 and now_s > at_s:
                return worked / (now_s - at_s)
        return 0.0


def _worked(totals: TaskTotals) -> int:
    """An input takes nothing, a timer emits without, and what was read may be completed later."""
    return totals.segments_in or totals.segments_out or totals.completed


def _rate(segments_per_s: float) -> str:
    """Zero stands for nothing alone."""
    if 0 < segments_per_s < 10:
        return f"{max(segments_per_s, 0.1):.1f}"
    return f"{segments_per_s:,.0f}"
