"""What the replica knows of segments over which processes have died."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.log.replica_log import ReplicaLog
from tests.support.log.runs import by_job

from onyx.replica import canonical
from onyx.replica.commands import KillJob, ReportLoss, report_loss


def running() -> ReplicaLog:
    return ReplicaLog().join("g", peers=3).submit()


def lost(log: ReplicaLog, name: str, *runs: tuple[int, int, int], **more: Any) -> ReplicaLog:
    args = {"job": "j", "task": "parse", "loss": name, "runs": [list(run) for run in runs], **more}
    log.tell(ReportLoss(**args))
    return log


def counts(log: ReplicaLog) -> dict[str, int]:
    return dict(log.new.run("j").losses)


KEY = report_loss.key_of("parse", 0, 7, "ab")


def over(log: ReplicaLog, position: int = 7, id: str = "ab") -> int:
    return report_loss.over_segment(log.new, "j", "parse", 0, position, id)


def test_a_batch_comes_under_suspicion_and_nobody_is_guilty() -> None:
    log = lost(running(), "a", (0, 5, 9), (2, 1, 1))
    assert log.new.run("j").suspects_of("parse") == ((0, 5, 9, 1), (2, 1, 1, 1))
    assert log.new.run("j").suspects_of("read") == ()
    assert counts(log) == {}
    assert over(log) == 0
    assert canonical.decode(canonical.encode(log.new)) == log.new


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_whoever_is_alone_in_a_death_has_all_deaths_counted_in_which_it_was(batches: int) -> None:
    log = running()
    for number in range(batches):
        lost(log, f"batch {number}", (0, 5, 9))
    lost(log, "alone", (0, 7, 7), id="ab")
    assert over(log) == batches + 1
    lost(log, "alone again", (0, 7, 7), id="ab")
    assert over(log) == batches + 2
    assert over(log, id="cd") == 0, "another child of the same segment"
    assert over(log, position=8) == 0, "one that was near"


def test_deaths_over_batches_of_other_sizes_and_of_two_tasks_count_as_well() -> None:
    log = lost(running(), "a", (0, 5, 9))
    lost(log, "b", (0, 0, 7), (0, 11, 12))
    lost(log, "c", (0, 7, 7))
    lost(log, "d", (0, 7, 7), task="read")
    lost(log, "e", (0, 7, 7), id="ab")
    assert over(log) == 4


def test_kills_count_against_a_segment_only_where_it_was_alone() -> None:
    log = running()
    for number in range(9):
        lost(log, f"batch {number}", (0, 5, 9), killed=True)
    assert log.new.run("j").suspects_of("parse") == ((0, 5, 9, 0),)
    for number in range(3):
        lost(log, f"alone {number}", (0, 7, 7), id="ab", killed=True)
        assert over(log) == number + 1
    lost(log, "crash", (0, 6, 8))
    assert over(log) == 4, "the other kinds of death count as before"


def test_one_segment_that_was_no_suspect_before_has_lost_one() -> None:
    log = lost(running(), "a", (0, 7, 7), id="ab")
    assert counts(log) == {KEY: 1}
    assert over(log) == 1
    assert log.new.run("j").suspects_of("parse") == ((0, 7, 7, 0),)


def test_a_report_that_comes_twice_counts_once() -> None:
    log = running()
    for _ in range(3):
        lost(log, "a", (0, 7, 7), id="ab")
    assert counts(log) == {KEY: 1}


def test_deaths_over_no_segment_count_against_the_task_in_a_row() -> None:
    log = running()
    for name in "abc":
        lost(log, name)
    assert counts(log) == {"parse": 3}
    lost(log, "d", afresh=True)
    assert counts(log) == {"parse": 1}


def test_nothing_is_known_of_jobs_that_have_ended_or_of_tasks_that_do_not_exist() -> None:
    log = running()
    lost(log, "a", (0, 7, 7), job="k")
    lost(log, "b", (0, 7, 7), task="nowhere")
    assert not by_job(log.new, "suspects")
    lost(log, "c", (0, 7, 7), id="ab")
    log.tell(KillJob(job="j"))
    assert not by_job(log.new, "suspects")
    assert not by_job(log.new, "losses")
    assert not by_job(log.new, "loss_reports")


def test_what_is_known_is_bounded_and_the_newest_stays() -> None:
    log = running()
    for number in range(report_loss.COUNTED_MAX + 10):
        lost(log, f"{number}", (0, 2 * number, 2 * number), id=f"{number:x}")
    assert report_loss.SUSPECT_RUNS_MAX <= len(counts(log)) <= report_loss.COUNTED_MAX
    newest = 2 * (report_loss.COUNTED_MAX + 9)
    assert report_loss.key_of("parse", 0, newest, f"{newest // 2:x}") in counts(log)
    runs = log.new.run("j").suspects_of("parse")
    assert len(runs) == report_loss.SUSPECT_RUNS_MAX
    last = 2 * (report_loss.COUNTED_MAX + 9)
    assert runs[-1] == (0, last, last, 0)
    assert len(log.new.run("j").loss_reports) == report_loss.REPORTS_KEPT_MAX


@pytest.mark.parametrize(
    "wrong",
    [
        {"runs": [[0, 1]]},
        {"runs": [[0, -1, 5]]},
        {"runs": [[0, 1, 2**50]]},
        {"runs": [[0, 1, 2]] * 300},
        {"loss": ""},
        {"id": "x" * 17},
    ],
)
def test_reports_that_are_not_well_formed_are_rejected(wrong: dict[str, Any]) -> None:
    log = running()
    args = {"job": "j", "task": "parse", "loss": "a", "runs": [[0, 1, 2]]}
    log.tell_raw("report-loss", **{**args, **wrong})
    assert log.new.rejected == 1
    assert not by_job(log.new, "suspects")
