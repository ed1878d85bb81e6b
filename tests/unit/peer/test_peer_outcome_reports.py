"""Groups report segments that did not go on, and a job's status adds their reports up."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from tests.support.jobs.bench import GROUP, JOB, Bench, chain
from tests.support.log.memory_log import MemoryLog

from onyx.client.reports import outcomes
from onyx.ids import GroupId, TaskName
from onyx.peer.watch.outcome_reports import WRITE_INTERVAL_S, OutcomeReports
from onyx.telemetry.catalog import DEAD_LETTERS, RETRIES, TAKEN_OVER, Metric
from onyx.telemetry.interface import NULL_TASK
from onyx.telemetry.kept_counts import SIZE, KeptCounts

FN = TaskName("work")


def now(work: Callable[[], None]) -> Future[None]:
    future: Future[None] = Future()
    future.set_result(work())
    return future


class Reporting:
    """A supervisor, the process that counts, and what `onyx jobs` says."""

    def __init__(self) -> None:
        self.bench = Bench(chain([{"n": 1}], fn="m:fn"), {"m:fn": lambda segment: segment})
        self.memory = mmap.mmap(-1, SIZE)
        self.log = MemoryLog()
        self.client = self.log.client()
        self.begin()

    def begin(self, group: str = GROUP) -> None:
        """A process begins, with the memory of the one before. It has no tasks yet."""
        session = self.log.group(GroupId(group))
        session.register_pulse()
        self.bench.replace_groups(group)
        self.counts = KeptCounts(self.memory, 0)
        self.reports = OutcomeReports(session, self.bench.clock, now, self.counts)

    def work(self) -> None:
        """The process has a task."""
        self.metrics = self.counts.metrics(JOB, FN, NULL_TASK)

    def fail(self, segments: int) -> None:
        self.metrics.batch(segments, 0)
        self.metrics.add(DEAD_LETTERS, segments)
        self.metrics.note(DEAD_LETTERS, lambda: "ValueError: no")

    def look(self, after_s: float = 1.0) -> tuple[str, ...]:
        self.bench.clock.advance(after_s)
        self.reports.look(self.bench.replica().records, permitted=True)
        return self.said()

    def said(self) -> tuple[str, ...]:
        bench = self.bench
        return outcomes(self.client, bench.replica(), bench.job, JOB)


@pytest.fixture
def reporting() -> Reporting:
    found = Reporting()
    found.work()
    return found


def dead(count: int, of: int | None = None, about: str = "") -> tuple[str, ...]:
    """What is said of dead letters."""
    segments = f"{count} of {of or count} segments"
    return (f"{about}{segments} of work went to dead letters; first error: ValueError: no",)


def test_nothing_is_written_while_all_segments_go_on(reporting: Reporting) -> None:
    reporting.metrics.batch(5, 5)

    assert reporting.look() == ()


def test_the_first_is_reported_at_once_and_what_follows_now_and_then(reporting: Reporting) -> None:
    reporting.fail(2)
    assert reporting.look() == dead(2)

    reporting.fail(3)
    assert reporting.look() == dead(2)
    assert reporting.look(WRITE_INTERVAL_S) == dead(5)

    reporting.fail(1)
    reporting.reports.end()
    assert reporting.said() == dead(6)


def test_what_a_killed_process_had_not_reported_the_next_one_does(reporting: Reporting) -> None:
    reporting.fail(231)
    assert reporting.look() == dead(231)
    reporting.fail(43)

    reporting.begin("next")  # and works on something else

    assert reporting.look() == dead(274)


def test_what_is_lost_with_a_supervisor_makes_counts_uncertain(reporting: Reporting) -> None:
    reporting.fail(231)
    assert reporting.look() == dead(231)
    reporting.fail(43)

    reporting.bench.replace_groups("elsewhere")

    assert reporting.said() == dead(231, about="about ")


def test_a_group_that_has_left_or_works_on_something_else_leaves_counts_that_are_exact(
    reporting: Reporting,
) -> None:
    reporting.fail(3)
    assert reporting.look() == dead(3)
    reporting.fail(2)
    reporting.metrics.close()
    assert reporting.look() == dead(5)
    reporting.bench.replace_groups("elsewhere")
    assert reporting.said() == dead(5)

    reporting.begin("next")
    reporting.work()
    reporting.fail(1)
    reporting.reports.look(reporting.bench.replica().records, permitted=True)
    reporting.reports.end()
    reporting.bench.replace_groups("elsewhere")

    assert reporting.said() == dead(6)


@pytest.mark.parametrize("metric", [RETRIES, TAKEN_OVER])
def test_what_is_read_again_counts_again_and_that_is_said(
    reporting: Reporting, metric: Metric
) -> None:
    reporting.fail(3)
    reporting.counts.metrics(JOB, TaskName("read"), NULL_TASK).add(metric, 10)

    assert reporting.look() == dead(3, about="about ")


def test_jobs_that_are_forgotten_are_not_reported(reporting: Reporting) -> None:
    reporting.fail(3)
    reporting.bench.clock.advance(1.0)
    reporting.reports.look((), permitted=True)

    assert reporting.said() == ()
