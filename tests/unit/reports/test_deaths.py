"""What is said of a job because worker processes have died."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.log.memory_log import MemoryLog

from onyx.client.deaths import KEPT_MAX, OUTDATED_S, read_deaths, report_death
from onyx.ids import JobId
from onyx.reports.deaths import SHOWN_S, Death, DeathCause, concerning, halts, reason, sentence

NOW_MS = 1_795_262_400_000
MIB = 1 << 20
JOB = JobId("job-1")
KILLED = Death(
    "pod-0",
    2,
    NOW_MS,
    DeathCause.MEMORY,
    "SIGKILL",
    498 * MIB,
    512 * MIB,
    "in apply of eat",
    (JOB, JobId("innocent")),
    (JOB,),
)
CRASHED = Death("pod-1", 0, NOW_MS - 1_000, DeathCause.SIGNAL, "SIGSEGV", 40 * MIB)


def test_deaths_are_told_by_cause_with_the_last_one() -> None:
    said = sentence([CRASHED, KILLED, KILLED])
    assert said.startswith(
        "worker processes die: 1 by SIGSEGV, 2 for want of memory in the last 10 minutes, the "
        "last one at 2026-11-21T12:00:00Z (process 2 of pod-0, which held 498 MiB at most, with a "
        "memory limit of 512 MiB, in apply of eat)"
    )
    assert "resources.limits.memory" in said
    assert sentence([CRASHED]).endswith("(process 0 of pod-1, which held 40 MiB at most)")
    assert sentence([]) == ""


@pytest.mark.parametrize(
    ("deaths", "expected"), [([CRASHED], "WorkersDie"), ([CRASHED, KILLED], "OutOfMemory")]
)
def test_the_reason_is_want_of_memory_if_any_was(deaths: list[Death], expected: str) -> None:
    assert reason(deaths) == expected


def test_want_of_memory_is_the_reason_of_those_alone_who_may_have_caused_it() -> None:
    neighbour = JobId("innocent")
    assert reason([KILLED], JOB) == "OutOfMemory"
    assert reason([KILLED], neighbour) == "WorkersDie"
    assert reason([replace(KILLED, blamed=())], neighbour) == "OutOfMemory", "nobody knows"
    assert "in apply of eat" in sentence([KILLED], neighbour)
    assert "more memory" not in sentence([KILLED], neighbour)
    assert "more memory" in sentence([KILLED], JOB)


def test_a_job_is_concerned_by_recent_deaths_that_may_be_its_own() -> None:
    old = replace(KILLED, at_ms=NOW_MS - int(SHOWN_S * 1000))
    assert concerning([KILLED, old, CRASHED], JOB, NOW_MS) == [CRASHED, KILLED]
    assert concerning([KILLED, CRASHED], JobId("other"), NOW_MS) == [CRASHED]


@pytest.mark.parametrize(
    ("deaths", "moved_ms", "expected"),
    [
        ([], 0, False),
        ([KILLED], 0, False),
        ([CRASHED, KILLED], NOW_MS - 2_000, True),
        ([CRASHED, KILLED], NOW_MS - 1_000, False),
        ([CRASHED, CRASHED, KILLED], NOW_MS - 500, False),
    ],
)
def test_a_job_stands_still_that_completes_nothing_between_deaths(
    deaths: list[Death], moved_ms: int, expected: bool
) -> None:
    assert halts(deaths, moved_ms) is expected


def test_reports_are_bounded_and_go_when_they_are_outdated() -> None:
    log = MemoryLog().client()
    for number in range(KEPT_MAX + 5):
        report_death(log, replace(KILLED, process=number))
    report_death(log, CRASHED)
    report_death(log, replace(CRASHED, host="../elsewhere"))
    assert len(read_deaths(log)) == KEPT_MAX + 2
    later = replace(CRASHED, host="pod-9", at_ms=NOW_MS + int(OUTDATED_S * 1000) + 1_000)
    report_death(log, later)
    assert read_deaths(log) == [later]
    log.close()
