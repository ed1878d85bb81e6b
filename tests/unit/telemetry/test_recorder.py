"""The flight recorder: what is in it after a death, and who may be in user code at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clocks import ManualClock

from onyx.base.runs import Run
from onyx.ids import JobId, TaskName
from onyx.telemetry import recorder
from onyx.telemetry.recorder import (
    ALONE_WAIT_FIRST_S,
    ALONE_WAIT_MAX_S,
    RESERVED_S,
    ROOTS_MAX,
    Recorder,
    Slot,
)

JOB = JobId("job-1")


class Shared:
    """A recorder as the worker has it, and as its supervisor does."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.descriptor = recorder.create()
        self.worker = Recorder(self.descriptor, self.clock)
        self.supervisor = Recorder(self.descriptor, self.clock)

    def slot(self, task: str) -> Slot:
        return self.worker.slot(JOB, TaskName(task))


@pytest.fixture
def shared() -> Iterator[Shared]:
    made = Shared()
    yield made
    os.close(made.descriptor)


def roots(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.uint64)


def test_a_run_of_roots_is_recorded_by_its_first_and_their_number(shared: Shared) -> None:
    task = shared.slot("work")
    assert task.begin("apply-fn", Run(2**63, 3), 0, False)
    (found,) = shared.supervisor.deaths()
    assert found.roots == (2**63, 2**63 + 1, 2**63 + 2)
    task.end()
    assert task.begin("apply-fn", roots(4, 6), 0, False)
    (found,) = shared.supervisor.deaths()
    assert found.roots == (4, 6)


def test_the_supervisor_sees_who_is_in_user_code_and_over_what(shared: Shared) -> None:
    one, two, three = shared.slot("söme"), shared.slot("idle"), shared.slot("ended")
    assert one.begin("apply-fn", roots(5, 2**63 + 1), 0, False)
    assert two.begin("before-batch", None, 0, False)
    assert three.begin("route", roots(7), 9, False)
    three.end()
    found = {each.task: each for each in shared.supervisor.deaths()}
    assert sorted(found) == ["idle", "söme"]
    assert (found["söme"].job, found["söme"].phase) == (JOB, "apply-fn")
    assert found["söme"].roots == (5, 2**63 + 1)
    assert not found["idle"].over_segments
    shared.supervisor.clear()
    assert shared.supervisor.deaths() == []


def test_a_batch_is_written_once_and_each_phase_of_it_named(shared: Shared) -> None:
    slot, batch = shared.slot("work"), roots(1, 2, 3)
    for phase in ("after-read-batch", "apply-fn"):
        assert slot.begin(phase, batch, 0, False)
        assert shared.supervisor.deaths()[0].phase == phase
        slot.end()
    assert slot.begin("apply-fn", roots(4), 44, False)
    assert shared.supervisor.deaths()[0].roots == (4,)
    assert shared.supervisor.deaths()[0].id == 44


def test_segments_without_roots_are_told_from_no_segments(shared: Shared) -> None:
    slot = shared.slot("work")
    slot.begin("apply-fn", recorder.UNNAMED, 0, False)
    (found,) = shared.supervisor.deaths()
    assert (found.over_segments, found.roots) == (True, ())


class Place(NamedTuple):
    first: int
    count: int


def test_partitions_are_called_as_their_source_numbers_them(shared: Shared) -> None:
    """The numbers of a job begin with those of its windowed tasks, 128 each."""
    places = {TaskName("sum\n"): Place(0, 128)}
    slot = shared.worker.slot(JOB, TaskName("work"), lambda: places)
    assert slot.begin("apply-fn", roots(7), 0, False)
    places = {**places, TaskName("numbers"): Place(128, 4)}
    assert slot.begin("apply-fn", roots(8), 0, False)
    (found,) = shared.supervisor.deaths()
    assert found.place(130) == "partition 2 of numbers"
    assert found.place(127) == "partition 127 of sum\n"
    assert found.place(132) == "partition 132 of the job"

    places = {TaskName(f"{number:03}-{'t' * 100}"): Place(number, 1) for number in range(100)}
    assert slot.begin("apply-fn", roots(9), 0, False)
    (found,) = shared.supervisor.deaths()
    assert found.place(0).startswith("partition 0 of 000-t")
    assert found.place(99) == "partition 99 of the job"
    # Left by another version, or half written.
    for number in range(recorder.SLOTS + 1):
        at = number * recorder._SLOT + recorder._PLACES
        shared.worker._memory[at : at + 9] = b"\xff" * 9
    assert {each.places for each in shared.supervisor.deaths()} == {()}


def test_names_and_batches_that_are_too_long_are_cut(shared: Shared) -> None:
    slot = shared.worker.slot(JobId("j" * 10_000), TaskName("t" * 10_000))
    slot.begin("apply-fn", np.arange(ROOTS_MAX + 5, dtype=np.uint64), 0, False)
    (found,) = shared.supervisor.deaths()
    assert len(found.roots) == ROOTS_MAX
    assert set(found.job) == {"j"}


def test_tasks_beyond_the_slots_work_unrecorded_and_a_slot_is_used_again(shared: Shared) -> None:
    slots = [shared.slot("many") for _ in range(recorder.SLOTS)]
    over = shared.slot("over")
    assert over is recorder.NOT_RECORDED
    assert over.begin("apply-fn", roots(1), 1, False)
    over.end()
    slots[0].close()
    assert shared.slot("next") is not recorder.NOT_RECORDED


def test_an_orderly_end_says_its_code(shared: Shared) -> None:
    assert shared.supervisor.orderly() is None
    shared.worker.ends(3)
    assert shared.supervisor.orderly() == 3
    shared.supervisor.clear()
    assert shared.supervisor.orderly() is None


def test_losses_stay_when_the_rest_is_cleared(shared: Shared) -> None:
    assert shared.worker.losses() == b""
    shared.supervisor.keep(b"[1]")
    shared.supervisor.clear()
    assert shared.worker.losses() == b"[1]"
    shared.worker.keep(b"")
    assert shared.supervisor.losses() == b""


def test_who_is_alone_waits_for_the_others_and_they_wait_for_it(shared: Shared) -> None:
    suspect, other, third = shared.slot("suspect"), shared.slot("other"), shared.slot("third")
    assert other.begin("apply-fn", roots(1), 1, False)
    assert not suspect.begin("apply-fn", roots(2), 2, True)
    assert not third.begin("apply-fn", roots(3), 3, False), "nobody goes in any more"
    other.end()
    assert suspect.begin("apply-fn", roots(2), 2, True)
    assert not other.begin("apply-fn", roots(1), 1, False)
    assert [each.task for each in shared.supervisor.deaths()] == ["suspect"]
    suspect.end()
    assert not other.begin("apply-fn", roots(1), 1, False), "the next suspect may come"
    assert suspect.begin("apply-fn", roots(4), 4, True)
    suspect.end()
    assert suspect.begin("apply-fn", roots(5), 5, False), "that was the last one"
    suspect.end()
    assert other.begin("apply-fn", roots(1), 1, False)


def test_what_takes_long_is_waited_for_in_turns_until_the_suspect_is_alone(shared: Shared) -> None:
    suspect, slow, third = shared.slot("suspect"), shared.slot("slow"), shared.slot("third")
    assert slow.begin("apply-fn", roots(1), 1, False)
    held_up_s = 0.0
    for _ in range(500):
        assert not suspect.begin("apply-fn", roots(2), 2, True), "it would be in doubt"
        if third.begin("apply-fn", roots(3), 3, False):
            third.end()
        else:
            held_up_s += 0.1
        shared.clock.advance(0.1)
    assert ALONE_WAIT_FIRST_S < held_up_s < 40.0, "the others have their turns"
    slow.end()
    assert suspect.begin("apply-fn", roots(2), 2, True)
    assert [each.task for each in shared.supervisor.deaths()] == ["suspect"]


def test_a_task_that_stays_in_user_code_does_not_stop_the_others_for_ever(shared: Shared) -> None:
    suspect, stuck, third = shared.slot("suspect"), shared.slot("stuck"), shared.slot("third")
    assert stuck.begin("apply-fn", roots(1), 1, False)

    def waited_s() -> float:
        began_s = shared.clock.monotonic_s()
        while not suspect.begin("apply-fn", roots(2), 2, True):
            shared.clock.advance(0.1)
        return shared.clock.monotonic_s() - began_s

    assert ALONE_WAIT_MAX_S < waited_s() < 5 * ALONE_WAIT_MAX_S, "among the others in the end"
    assert third.begin("apply-fn", roots(3), 3, False)
    suspect.end()
    assert waited_s() == 0.0, "and at once from then on"
    suspect.end()
    third.end()
    shared.clock.advance(ALONE_WAIT_MAX_S)
    assert not suspect.begin("apply-fn", roots(2), 2, True)


@pytest.mark.parametrize("closes", [True, False])
def test_who_waited_to_be_alone_and_went_away_stops_nobody(shared: Shared, closes: bool) -> None:
    suspect, other, third = shared.slot("suspect"), shared.slot("other"), shared.slot("third")
    assert other.begin("apply-fn", roots(1), 1, False)
    assert not suspect.begin("apply-fn", roots(2), 2, True)
    if closes:
        suspect.close()
    else:
        shared.clock.advance(RESERVED_S)
    other.end()
    assert third.begin("apply-fn", roots(3), 3, False)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=200), st.integers(1, 20))
def test_runs_have_every_number_and_are_few(numbers: Sequence[int], runs_max: int) -> None:
    found = recorder.runs(numbers, runs_max)
    assert len(found) <= runs_max
    assert all(any(first <= n <= last for first, last in found) for n in numbers)
    ends = [end for run in found for end in run]
    assert ends == sorted(ends)
    if len(recorder.runs(numbers, 10_000)) <= runs_max:
        assert sum(last - first + 1 for first, last in found) == len(set(numbers))


def test_the_jobs_whose_user_code_has_run_are_known_after_the_death() -> None:
    shared = Shared()
    assert shared.supervisor.jobs() == []
    for job in ("one", "two", "one"):
        slot = shared.worker.slot(JobId(job), TaskName("task"))
        slot.begin("apply", None, 0, False)
        slot.end()
    shared.supervisor.clear()
    assert shared.supervisor.jobs() == ["one", "two"]
