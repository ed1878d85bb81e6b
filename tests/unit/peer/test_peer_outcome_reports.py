"""Groups report segments that did not go on, and a job's status adds their reports up."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from concurrent.futures import Future

from tests.support.jobs.bench import GROUP, JOB, Bench, chain

from onyx.client.reports import totals
from onyx.ids import GroupId, TaskName
from onyx.log import job_documents
from onyx.outcomes import TaskTotals
from onyx.peer.watch.outcome_reports import WRITE_INTERVAL_S, OutcomeReports
from onyx.telemetry.catalog import DEAD_LETTERS
from onyx.telemetry.interface import NULL_TASK
from onyx.telemetry.kept_counts import SIZE, KeptCounts

FN = TaskName("fn")


def now(work: Callable[[], None]) -> Future[None]:
    future: Future[None] = Future()
    future.set_result(work())
    return future


class Reporting:
    """A group that counts, and its reports."""

    def __init__(self) -> None:
        self.bench = Bench(chain([{"n": 1}], fn="m:fn"), {"m:fn": lambda segment: segment})
        self.memory = mmap.mmap(-1, SIZE)
        self.begin()

    def begin(self) -> None:
        """A process begins, with the memory of the one before."""
        self.counts = KeptCounts(self.memory, 0)
        log, clock = self.bench.log, self.bench.clock
        self.reports = OutcomeReports(log, clock, now, self.counts)
        self.metrics = self.counts.metrics(JOB, FN, NULL_TASK)

    def fail(self, segments: int) -> None:
        self.metrics.batch(segments, 0)
        self.metrics.add(DEAD_LETTERS, segments)
        self.metrics.note(DEAD_LETTERS, lambda: "ValueError: no")

    def look(self, after_s: float = 1.0) -> dict[str, TaskTotals]:
        self.bench.clock.advance(after_s)
        self.reports.look(permitted=True)
        return totals(self.bench.log, JOB)


def test_nothing_is_written_while_all_segments_go_on() -> None:
    reporting = Reporting()
    reporting.metrics.batch(5, 5)

    assert reporting.look() == {}


def test_the_first_is_reported_at_once_and_what_follows_now_and_then() -> None:
    reporting = Reporting()
    reporting.fail(2)
    assert reporting.look()["fn"].dead_letters == 2

    reporting.fail(3)
    assert reporting.look()["fn"].dead_letters == 2
    assert reporting.look(WRITE_INTERVAL_S)["fn"].dead_letters == 5

    reporting.fail(1)
    reporting.reports.end()
    found = reporting.look()["fn"]
    assert (found.dead_letters, found.first_dead_letter) == (6, "ValueError: no")


def test_reports_of_groups_that_have_left_count_once() -> None:
    reporting = Reporting()
    reporting.fail(2)
    reporting.look()
    log = reporting.bench.log
    left = log.get_document(job_documents.outcome(JOB, GroupId(GROUP)))
    assert left is not None
    log.put_document(job_documents.outcome(JOB, GroupId("left")), left.data, None)
    log.delete_documents(job_documents.outcome(JOB, GroupId(GROUP)))

    reporting.begin()
    reporting.fail(1)

    assert reporting.look()["fn"].dead_letters == 3
