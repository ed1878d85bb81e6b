"""What a task counts as made is what goes on to its children, whoever makes it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.jobs.bench import Bench
from tests.unit.task import test_task_keyed_timers as timers
from tests.unit.task import test_task_processors as processors
from tests.unit.task import test_task_stream_joins as joins
from tests.unit.task import test_task_windowed as windows

from onyx.ids import JobId, TaskName
from onyx.model.job import Job
from onyx.telemetry.interface import TaskMetrics


class Counted(TaskMetrics):
    """Segments in and out of the tasks of a job."""

    def __init__(self, task: str, taken: Counter[str], made: Counter[str]) -> None:
        self._task, self._taken, self._made = task, taken, made

    def batch(self, read: int, written: int, *_: float, **__: float) -> None:
        self._taken[self._task] += read
        self._made[self._task] += written


def counts(bench: Bench) -> tuple[Counter[str], Counter[str]]:
    """By task, what it has taken and made until the end."""
    taken, made = Counter[str](), Counter[str]()

    def metrics(job_id: JobId, job: Job, task: TaskName) -> TaskMetrics:
        return Counted(task, taken, made)

    bench.metrics = metrics  # type: ignore[method-assign]
    bench.settle()
    assert bench.completed
    return taken, made


def windowed(kind: str, guarantee: str) -> Bench:
    return Bench(windows.spec(kind, guarantee), windows.FUNCTIONS, peers={"count": 2})


def with_timers(events: list[dict[str, Any]]) -> Bench:
    return timers.bench_of(timers.visit, timers.gone, events)


JOBS = {
    "a reduce task": lambda: (windowed("reduce", "exactly-once"), "count"),
    "a reduce task at most once": lambda: (windowed("reduce", "at-most-once"), "count"),
    "a function with windows": lambda: (windowed("function", "at-least-once"), "count"),
    "a function with timers": lambda: (with_timers(timers.EVENTS), "visit"),
    "a processor": lambda: (processors.bench_of(), "totals"),
    "a join": lambda: (joins.bench_of(), "join"),
    "a join over columns": lambda: (joins.bench_of(columns=True), "join"),
}


@pytest.mark.parametrize("which", JOBS)
def test_a_task_has_made_what_its_child_has_taken(which: str) -> None:
    bench, task = JOBS[which]()
    taken, made = counts(bench)
    assert made[task] == taken["write"] == len(bench.written("write")) > 0
