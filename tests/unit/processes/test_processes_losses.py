"""Which deaths of a worker process say something about segments, and what."""

from __future__ import annotations

import os
import signal
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.clocks import ManualClock

from onyx.ids import JobId, TaskName
from onyx.peer import loss_reports
from onyx.processes import child, exit_examiner
from onyx.processes.exit_examiner import ExitExaminer
from onyx.settings import Settings, SupervisorSettings
from onyx.telemetry import recorder
from onyx.telemetry.recorder import Inside, Recorder


@pytest.fixture
def recorded() -> Iterator[Recorder]:
    descriptor = recorder.create()
    yield Recorder(descriptor, ManualClock())
    os.close(descriptor)


def inside(*roots: int, over: bool = True, task: str = "work", id: int = 0xAB) -> Inside:
    return Inside(JobId("j"), TaskName(task), "apply-fn", over, roots, id)


def root(partition: int, position: int, attempt: int = 0) -> int:
    return partition << 48 | attempt << 40 | position


@pytest.mark.parametrize(
    ("code", "orderly", "own"),
    [
        (-signal.SIGKILL, None, False),
        (-signal.SIGTERM, None, False),
        (-signal.SIGINT, None, False),
        (-signal.SIGHUP, None, False),
        (-signal.SIGSEGV, None, True),
        (-signal.SIGABRT, None, True),
        (-signal.SIGBUS, None, True),
        (0, None, True),
        (3, None, True),
        (0, 0, False),
        (1, 1, False),
        (3, 3, False),
    ],
)
def test_a_process_has_died_by_itself_unless_others_ended_it_or_it_meant_to(
    code: int, orderly: int | None, own: bool, recorded: Recorder
) -> None:
    if orderly is not None:
        recorded.ends(orderly)
    assert exit_examiner.by_itself(code, recorded) is own


def reported(*deaths: Inside, lived_s: float = 1.0) -> list[tuple[Any, ...]]:
    made = exit_examiner.reports(deaths, lived_s)
    return [(each.task, list(each.runs), each.id, each.afresh) for each in made]


@pytest.mark.parametrize(
    ("deaths", "expected"),
    [
        ([], []),
        ([inside(root(2, 7))], [("work", [(2, 7, 7)], "ab", False)]),
        ([inside(root(2, 7, attempt=200))], [("work", [(2, 7, 7)], "ab", False)]),
        (
            [inside(root(0, 5), root(0, 6), root(1, 9, 3))],
            [("work", [(0, 5, 6), (1, 9, 9)], "", False)],
        ),
        (
            [inside(root(0, 5)), inside(root(0, 9), task="write")],
            [("work", [(0, 5, 5)], "", False), ("write", [(0, 9, 9)], "", False)],
        ),
        ([inside(over=False)], [("work", [], "", False)]),
        ([inside(over=False), inside(root(0, 5))], [("work", [(0, 5, 5)], "", False)]),
        (
            [inside(over=False), inside(over=False, task="write")],
            [("work", [], "", False), ("write", [], "", False)],
        ),
        ([inside()], []),
    ],
    ids=[
        "nobody",
        "one segment for certain",
        "whatever its attempt",
        "one of several, perhaps",
        "one of two tasks, perhaps",
        "a hook for certain",
        "a hook, or a segment",
        "hooks of one job",
        "at most once",
    ],
)
def test_what_is_reported(deaths: list[Inside], expected: list[Any]) -> None:
    assert reported(*deaths) == expected


def test_a_batch_over_many_partitions_and_positions_is_told_in_few_runs() -> None:
    roots = [root(partition, 10 * n) for partition in range(100) for n in range(50)]
    ((_, runs, _, _),) = reported(inside(*roots))
    assert len(runs) <= exit_examiner.RUNS_MAX


@pytest.mark.parametrize("killed", [False, True])
def test_a_report_says_whether_the_process_was_killed(killed: bool) -> None:
    (found,) = exit_examiner.reports([inside(root(0, 5), root(0, 6))], 1.0, killed)
    assert (found.killed, found.id) == (killed, "")


def test_a_process_that_has_lived_long_begins_a_new_count() -> None:
    assert reported(inside(over=False), lived_s=exit_examiner.LIVED_LONG_S)[0][3] is True


@pytest.mark.slow
def test_reports_are_left_beside_those_that_nobody_has_made_and_never_too_many(
    recorded: Recorder,
) -> None:
    for number in range(600):
        deaths = [inside(*(root(0, 3_000 * n) for n in range(60)), task=f"t{number}")]
        exit_examiner.hand_over(recorded, exit_examiner.reports(deaths, 1.0))
    tasks = [each.task for each in exit_examiner.left(recorded)]
    assert tasks[-1] == "t599"
    assert 10 < len(tasks) < 600


def test_the_log_names_job_task_phase_and_positions() -> None:
    text = exit_examiner.described(
        [inside(root(0, 5), root(0, 6)), inside(over=False, task="write")]
    )
    assert text == (
        "in apply-fn of task work of job j, over 2 segments (partition 0 of the job at position 5 "
        "to 6); or in apply-fn of task write of job j"
    )


@pytest.mark.parametrize("junk", [b"\xff" * 64, b"{", b"[1"])
def test_a_recorder_that_was_overwritten_is_read_all_the_same(
    junk: bytes, recorded: Recorder
) -> None:
    recorded.keep(junk)
    assert exit_examiner.left(recorded) == []
    assert loss_reports.pending(recorded) == ()
    exit_examiner.hand_over(recorded, exit_examiner.reports([inside(root(0, 1))], 1.0))
    assert len(exit_examiner.left(recorded)) == 1
    slot = recorded.slot(JobId("j"), TaskName("t"))
    slot.begin("apply-fn", None, 0, False)
    memory = recorded._memory
    memory[recorder._SLOT + 1 : recorder._SLOT + 200] = junk.ljust(199, b"\xff")
    (found,) = recorded.deaths()
    exit_examiner.reports([found], 1.0)
    assert exit_examiner.described([found])


def examiner(folder: Path) -> ExitExaminer:
    return ExitExaminer(Settings(supervisor=SupervisorSettings(recorder_folder=str(folder))))


def dies_with_its_container(
    path: Path, *works: tuple[str, list[int]], orderly: bool = False
) -> None:
    """Processes of a recorder write it, and nobody of them reads it."""
    descriptor = recorder.create(str(path))
    written = Recorder(descriptor, ManualClock())
    for task, roots in works:
        column = array("Q", roots)
        written.slot(JobId("j"), TaskName(task)).begin("apply-fn", column, 0xAB, False)
    if orderly:
        written.ends(0)
    written._memory.close()
    os.close(descriptor)


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ([[("work", [root(2, 7)])]], [("work", ((2, 7, 7),), "ab")]),
        ([[("work", [root(2, 7), root(2, 8)])]], [("work", ((2, 7, 8),), "")]),
        (
            [[("work", [root(2, 7)])], [("eat", [root(0, 1)])]],
            [("work", ((2, 7, 7),), ""), ("eat", ((0, 1, 1),), "")],
        ),
        ([[("work", [])]], []),
        ([[]], []),
    ],
    ids=["one segment", "a batch", "two processes are in doubt", "over nothing", "nobody inside"],
)
def test_the_next_supervisor_reports_over_what_a_container_was_killed(
    processes: list[list[tuple[str, list[int]]]], expected: list[Any], tmp_path: Path
) -> None:
    for number, works in enumerate(processes):
        dies_with_its_container(tmp_path / f"worker-{number}.recorder", *works)
    found = examiner(tmp_path).left_behind()
    assert [(each.task, each.runs, each.id) for each in found] == expected
    assert all(each.killed for each in found)
    assert examiner(tmp_path).left_behind() == [], "once"
    assert list(tmp_path.iterdir()) == []


def test_recorders_that_are_in_use_or_of_an_orderly_end_or_foreign_say_nothing(
    tmp_path: Path,
) -> None:
    work = ("work", [root(2, 7)])
    dies_with_its_container(tmp_path / "worker-0.recorder", work, orderly=True)
    (tmp_path / "worker-1.recorder").write_bytes(b"short")
    (tmp_path / "notes.txt").write_text("mine")
    in_use = recorder.create(str(tmp_path / "worker-2.recorder"))
    assert examiner(tmp_path).left_behind() == []
    assert {each.name for each in tmp_path.iterdir()} == {"notes.txt", "worker-2.recorder"}
    os.close(in_use)
    assert examiner(tmp_path / "nowhere").left_behind() == []
    assert ExitExaminer(Settings()).left_behind() == []


def test_without_room_for_a_file_a_recorder_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    path, descriptor = child._new_recorder(str(tmp_path), 0)
    assert (path, os.fstat(descriptor).st_size) == ("", recorder.SIZE)
    os.close(descriptor)
    assert list(tmp_path.iterdir()) == []
    assert "No space left on device" in caplog.text
