"""What is old enough to be collected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.log.replica_log import ReplicaLog

from onyx.history.collection import LogMark, expired, marked, older_than, trim_to
from onyx.ids import NO_POSITION, JobId, Position
from onyx.replica.commands import KillJob
from onyx.settings import HistorySettings

DAY_MS = 86_400_000
SETTINGS = HistorySettings(age_s=86_400, killed_age_s=604_800, jobs_max=10, entries_max=1_000)


def marks(*pairs: tuple[int, int]) -> list[LogMark]:
    return [LogMark(Position(position), wall_ms) for position, wall_ms in pairs]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 400_000_000)), min_size=1, max_size=200),
    st.integers(1_000, 700_000_000),
)
def test_an_entry_that_is_old_by_all_marks_is_old_by_those_that_are_kept(
    steps: list[tuple[int, int]], age_ms: int
) -> None:
    """Thinned marks call nothing older than it is, and nothing younger by more than a part."""
    kept: tuple[LogMark, ...] = ()
    every: list[LogMark] = []
    now_ms = position = 0
    for entries, passed_ms in steps:
        position, now_ms = position + entries, now_ms + passed_ms
        every.append(LogMark(Position(position), now_ms))
        kept = marked(kept, Position(position), now_ms, SETTINGS)
    exact, found = (older_than(each, now_ms, age_ms / 1000) for each in (every, kept))
    assert found <= exact
    if age_ms <= 604_800_000:
        longest_gap_ms = max(passed for _, passed in steps)
        late_ms = age_ms * 1.2 + 2 * longest_gap_ms
        assert found >= older_than(every, now_ms, late_ms / 1000)


def test_weeks_take_a_few_dozen_marks() -> None:
    kept: tuple[LogMark, ...] = ()
    for minute in range(20_000):
        kept = marked(kept, Position(minute), minute * 60_000, SETTINGS)
    assert len(kept) < 120


def test_nothing_is_old_before_there_is_a_mark() -> None:
    assert older_than([], DAY_MS, 0) == NO_POSITION
    assert older_than(marks((5, 100)), 99, 0) == NO_POSITION


def ended(*ends: tuple[str, str]) -> ReplicaLog:
    log = ReplicaLog()
    for name, how in ends:
        end(log.submit(name), name, how)
    return log


def end(log: ReplicaLog, name: str, how: str) -> None:
    if how == "killed":
        log.tell(KillJob(job=name))
    else:
        log.complete(name)


@pytest.mark.parametrize(
    ("now_days", "gone"),
    [(0.5, ()), (2, ("a", "c")), (8, ("a", "c", "b")), (9, ("a", "c", "b"))],
)
def test_jobs_go_when_they_are_too_old_those_that_were_killed_later(
    now_days: float, gone: tuple[str, ...]
) -> None:
    log = ended(("a", "completed"), ("b", "killed"), ("c", "completed"))
    known = marks((log.new.version, 0))
    end(log.submit("young"), "young", "completed")
    found = expired(log.new, (), known, int(now_days * DAY_MS), SETTINGS)
    assert found == gone


def test_of_too_many_the_oldest_go_and_first_those_that_completed() -> None:
    log = ended(("k", "killed"), ("a", "completed"), ("b", "completed"), ("l", "killed"))
    few = HistorySettings(jobs_max=1)
    assert expired(log.new, (), [], 0, few) == ("a", "b", "k")
    assert expired(log.new, {JobId("k"), JobId("a")}, [], 0, few) == ("b",)
    assert expired(log.new, (), [], 0, SETTINGS) == ()


@pytest.mark.parametrize(
    ("origin", "head", "old", "expected"),
    [
        (-1, 900, -1, None),
        (-1, 1_100, -1, 600),
        (500, 1_200, 700, None),
        (500, 1_200, 800, 800),
        (-1, 900, 255, 255),
    ],
)
def test_the_log_is_trimmed_when_it_is_long_or_enough_of_it_is_old(
    origin: int, head: int, old: int, expected: int | None
) -> None:
    known = marks((old, 0)) if old >= 0 else []
    assert trim_to(Position(origin), Position(head), known, 2 * DAY_MS, SETTINGS) == expected
