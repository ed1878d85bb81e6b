"""Counts of tasks outlive the process that counted."""

from __future__ import annotations

import mmap

import pytest

from onyx.ids import GroupId, JobId, TaskName
from onyx.reports.outcomes import NOTHING, TaskTotals
from onyx.telemetry import kept_counts
from onyx.telemetry.catalog import DEAD_LETTERS, UNMATCHED, WATERMARK, WITHOUT_ROW
from onyx.telemetry.interface import NULL_TASK, TaskMetrics
from onyx.telemetry.kept_counts import SIZE, KeptCounts, summed

KEY = JobId("job-1"), TaskName("f")
OTHER = JobId("job-1"), TaskName("g")


@pytest.fixture
def memory() -> mmap.mmap:
    return mmap.mmap(-1, SIZE)


def work(counts: KeptCounts, segments: int) -> TaskMetrics:
    """A peer takes so many segments, of which one fails."""
    metrics = counts.metrics(*KEY, NULL_TASK)
    metrics.batch(segments, segments - 1)
    metrics.add(DEAD_LETTERS)
    metrics.note(DEAD_LETTERS, lambda: f"error of {segments}")
    metrics.add(WITHOUT_ROW, 2)
    metrics.set(WATERMARK, 7.0)  # is not kept
    return metrics


def test_the_next_process_goes_on_with_what_a_dead_one_had_counted(memory: mmap.mmap) -> None:
    work(KeptCounts(memory, 0), 10)
    work(KeptCounts(memory, 0), 5)  # another process, with the same memory

    total = KeptCounts(memory, 0).totals([KEY, OTHER])

    assert total[KEY] == TaskTotals(
        15, 13, dead_letters=2, without_row=4, first_dead_letter="error of 10"
    )
    assert total[OTHER] == NOTHING


def test_peers_on_one_task_count_apart_and_leave_their_counts(memory: mmap.mmap) -> None:
    counts = KeptCounts(memory, 0)
    first, second = work(counts, 3), work(counts, 4)
    first.close()
    second.batch(1, 1)
    third = work(counts, 2)  # has the row of the first

    third.close()
    third.close()

    assert counts.totals([KEY])[KEY].segments_in == 10
    assert summed([counts, counts], [KEY])[KEY].segments_in == 20


def test_a_process_knows_what_those_before_it_had_counted(memory: mmap.mmap) -> None:
    work(KeptCounts(memory, 0), 10)
    counts = KeptCounts(memory, 0)
    assert not counts.works_on(KEY[0])

    metrics = work(counts, 5)

    assert set(counts.tasks()) == {KEY}
    assert counts.works_on(KEY[0])
    metrics.close()
    assert not counts.works_on(KEY[0])


def test_the_memory_keeps_the_name_of_the_first_group(memory: mmap.mmap) -> None:
    assert KeptCounts(memory, 0).name(GroupId("first")) == "first"
    assert KeptCounts(memory, 0).name(GroupId("second")) == "first"


def test_without_room_a_peer_is_counted_elsewhere_only(
    memory: mmap.mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_counts, "ROWS", 1)
    counts = KeptCounts(memory, 0)
    work(counts, 3)

    assert counts.metrics(*KEY, NULL_TASK) is NULL_TASK
    assert counts.totals([KEY])[KEY].segments_in == 3


def test_a_long_note_is_cut_between_characters(memory: mmap.mmap) -> None:
    counts = KeptCounts(memory, 0)
    counts.metrics(*KEY, NULL_TASK).note(UNMATCHED, lambda: "é" * 10_000)

    assert counts.totals([KEY])[KEY].first_unmatched == "é" * 450
