"""The lines of `onyx run` about a job that advances."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.support.clocks import ManualClock

from onyx.cli.progress import JobProgress
from onyx.model.parsing.job import parse_manifest
from onyx.reports.outcomes import TaskTotals

JOB = parse_manifest("""
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: j}
spec:
  workflow: [[read, work], [work, write]]
  catalog:
    - {name: read, type: input, plugin: generator}
    - {name: work, type: function, fn: "m:work"}
    - {name: write, type: output, plugin: blackhole}
""")
SAMPLES = 10
"""In the five seconds between two lines."""


def lines(totals: Iterable[dict[str, TaskTotals]]) -> list[str]:
    """A line after every tenth of these totals, which come each half second."""
    clock, found, coming = ManualClock(), [], list(totals)
    read = iter(coming)
    progress = JobProgress(JOB, lambda: next(read), clock.monotonic_s)
    for number in range(1, len(coming) + 1):
        clock.advance(0.5)
        progress.sample({})
        if number % SAMPLES == 0:
            found.append(progress.line())
    return found


def reading(segments: int, completed: int = 0, work: int = 0) -> dict[str, TaskTotals]:
    return {
        "read": TaskTotals(segments_out=segments, completed=completed),
        "work": TaskTotals(segments_in=work, segments_out=work),
    }


def test_a_speed_is_that_of_the_last_ten_seconds() -> None:
    every_second = [reading(100 * (min(number, 20) // 2)) for number in range(1, 31)]
    assert lines(every_second) == [
        "500 segments read, 0 completed, 100/s",
        "1,000 segments read, 0 completed, 100/s",
        "1,000 segments read, 0 completed, 50/s",
    ]


@pytest.mark.parametrize(
    ("totals", "speeds"),
    [
        pytest.param(
            [reading(700 * (n // 14)) for n in range(1, 61)],
            ["0/s", "70/s", "140/s", "70/s", "70/s", "140/s"],
            id="a batch takes seven seconds",
        ),
        pytest.param(
            [reading(100)] * 10 + [reading(100, completed=n) for n in range(1, 11)],
            ["20/s", "10/s"],
            id="what was read is completed later",
        ),
        pytest.param(
            [reading(100)] * 70 + [reading(100, work=n * 10) for n in range(1, 11)],
            ["20/s", "10/s", "6.7/s", "5.0/s", "4.0/s", "3.3/s", "0/s", "10/s"],
            id="the input waits for a function",
        ),
        pytest.param(
            [reading(n // 10) for n in range(1, 21)], ["0.2/s", "0.2/s"], id="a slow source"
        ),
        pytest.param([reading(0)] * 20, ["0/s", "0/s"], id="nothing happens"),
    ],
)
def test_a_line_says_zero_only_when_nothing_has_happened_for_long(
    totals: list[dict[str, TaskTotals]], speeds: list[str]
) -> None:
    assert [line.rpartition(" ")[2] for line in lines(totals)] == speeds


def test_what_inputs_have_completed_is_what_their_positions_say() -> None:
    reads = {"read": TaskTotals(segments_in=700, retried=30, taken_over=5, completed=3)}
    progress = JobProgress(JOB, lambda: reads, ManualClock().monotonic_s)
    progress.sample({"read": 600})
    progress.sample({})  # ZooKeeper does not answer
    assert progress.line().startswith("0 segments read, 600 completed")

    progress.settle()
    (read, *_) = progress.rows()
    assert (read.completed, read.retried) == (600, 100)


def test_a_table_and_the_average_at_the_end_have_every_task() -> None:
    clock = ManualClock()
    progress = JobProgress(JOB, lambda: reading(600, work=300), clock.monotonic_s)
    clock.advance(2.0)
    progress.sample({})
    clock.advance(8.0)
    progress.sample({})
    assert [row.segments_per_s for row in progress.rows()] == [60.0, 30.0, 0.0]
    assert [row.segments_per_s for row in progress.rows(average=True)] == [300.0, 150.0, 0.0]


def test_neither_the_start_of_workers_nor_the_work_of_others_makes_a_task_slow() -> None:
    clock = ManualClock()
    looks = [(20.0, reading(0)), (1.0, reading(600)), (5.0, reading(600, work=300))]
    seen = iter(totals for _, totals in looks)
    progress = JobProgress(JOB, lambda: next(seen), clock.monotonic_s)
    for seconds, _ in looks:
        clock.advance(seconds)
        progress.sample({})
    assert [row.segments_per_s for row in progress.rows(average=True)] == [600.0, 50.0, 0.0]
