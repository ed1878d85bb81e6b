"""How far a seal is, as metrics and in words."""

from __future__ import annotations

from collections import Counter

import pytest

from onyx.plugins.protocol import SealProgress
from onyx.task.seal_progress import LatestProgress, count_stage_run, report_seal
from onyx.telemetry.catalog import Metric
from onyx.telemetry.interface import TaskMetrics


class Kept(TaskMetrics):
    """What was measured."""

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}

    def add(self, metric: Metric, amount: float = 1) -> None:
        self.sums[metric.name] += int(amount)

    def set(self, metric: Metric, value: float) -> None:
        self.gauges[metric.name] = value

    def observe(self, metric: Metric, value: float) -> None:
        """Nobody asks."""


def test_counters_grow_by_what_is_new_also_when_an_attempt_begins_anew() -> None:
    metrics, latest = Kept(), LatestProgress()
    first = SealProgress(tasks=4, tasks_done=1, rows_read=10, bytes_read=100)
    second = SealProgress(tasks=8, tasks_done=5, rows_read=30, bytes_read=100, rows_written=2)
    for each in (first, second, second, first):
        report_seal(latest, metrics, each)
    assert metrics.sums == {
        "onyx_spark_stage_read_rows_total": 40,
        "onyx_spark_stage_read_bytes_total": 200,
        "onyx_spark_stage_written_rows_total": 2,
    }
    assert metrics.gauges == {"onyx_spark_stage_tasks": 4, "onyx_spark_stage_tasks_done": 1}
    assert latest.value == first


@pytest.mark.parametrize("ended_well", [True, False])
def test_a_run_that_has_ended_says_nothing_of_the_next_one(ended_well: bool) -> None:
    metrics, latest = Kept(), LatestProgress()
    report_seal(latest, metrics, SealProgress(tasks=4, tasks_done=4, rows_read=10))
    count_stage_run(latest, metrics, 1.0, ended_well)
    assert latest.value is None
    report_seal(latest, metrics, SealProgress(tasks=4, tasks_done=4, rows_read=10))
    assert metrics.sums["onyx_spark_stage_read_rows_total"] == 20


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (SealProgress(), ""),
        (
            SealProgress(tasks=2, tasks_done=1, seen_at="http://h:4040"),
            "50 % of its 2 Spark tasks are done, see http://h:4040",
        ),
        (SealProgress(tasks=2_000, tasks_done=1_999), "99 % of its 2,000 Spark tasks are done"),
    ],
)
def test_progress_in_words(progress: SealProgress, words: str) -> None:
    assert progress.words == words
