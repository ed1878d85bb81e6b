"""Segments over which processes have died: worked on one by one, and refused in the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.support.jobs.bench import Bench, chain

from onyx.flow.batch import Segment
from onyx.peer.watch.stall_watch import facts_of
from onyx.plugins.generator import GeneratorInput
from onyx.replica.commands import ReportLoss
from onyx.reports.stalls import Reason
from onyx.settings import Settings, TaskSettings
from onyx.task.diagnosis import diagnose
from onyx.telemetry import recorder
from onyx.telemetry.recorder import RESERVED_S, Recorder

SEGMENTS = [{"n": n} for n in range(20)]
POISON = 7


class Job(Bench):
    """The chain, whose function notes what it was called with, and what the recorder said then."""

    def __init__(self, descriptor: int, **more: Any) -> None:
        self.batches: list[list[int]] = []
        self.seen: list[tuple[int, ...]] = []
        functions = {"m:same": self._work, "m:yes": lambda *_: True, "m:told": _told}
        functions |= more.pop("functions", {})
        settings = Settings(task=TaskSettings(losses_max=3))
        work = {"batchFn": True, **more.pop("work", {})}
        super().__init__(
            chain(SEGMENTS, batch_size=10, work=work, **more), functions, settings=settings
        )
        self.recorder = Recorder(descriptor, self.clock)
        for task in self.tasks.values():
            task.user_code.slot = self.recorder.slot(task.job_id, task.name)

    def _work(self, segments: list[Segment]) -> list[Segment]:
        self.batches.append([segment["n"] for segment in segments])
        assert isinstance(self.recorder, Recorder)
        self.seen += [each.roots for each in self.recorder.deaths()]
        return segments

    def lost(self, name: str, first: int, last: int, id: str = "", task: str = "work") -> None:
        runs = ((0, first, last),)
        found = ReportLoss(job=self.id, task=task, loss=name, runs=runs, id=id)
        self.propose(self.task("work").peer, found)

    def id_of(self, position: int) -> str:
        """Of a segment of the task's: found by working on it once."""
        return f"{self._ids()[position]:x}"

    def _ids(self) -> dict[int, int]:
        found: dict[int, int] = {}
        probe = Bench(chain(SEGMENTS, batch_size=1), {"m:same": lambda segment: segment})
        work = probe.task("work")
        for _ in range(10_000):
            probe.round()
            if work.work.batch is not None and work.work.batch.ids is not None:
                found[work.work.batch.segments[0]["n"]] = int(work.work.batch.ids[0])
            if probe.completed:
                break
        return found


def _told(event: Any, segment: Segment, error: Exception) -> Segment:
    return {"bad": segment["n"], "why": str(error)}


@pytest.fixture
def job() -> Iterator[Callable[..., Job]]:
    descriptors: list[int] = []

    def make(**more: Any) -> Job:
        descriptors.append(recorder.create())
        return Job(descriptors[-1], **more)

    yield make
    for each in descriptors:
        os.close(each)


MADE = {"plugin": "generator", "options": {"segments": 20, "fn": "m:made"}}
DEAD_LETTER = [
    {
        "from": "work",
        "to": ["write"],
        "predicate": "m:yes",
        "thrownException": True,
        "shortCircuit": True,
        "postTransform": "m:told",
    },
    {"from": "work", "to": ["write"], "predicate": "m:yes"},
]


def test_without_losses_batches_are_whole_and_recorded(job: Callable[..., Job]) -> None:
    bench = job()
    bench.settle()
    assert bench.completed
    assert sorted(map(len, bench.batches)) == [10, 10]
    assert sorted(map(len, bench.seen)) == [10, 10]


def test_suspects_are_worked_on_one_by_one_behind_the_others(job: Callable[..., Job]) -> None:
    bench = job()
    bench.lost("a", 6, 8)
    bench.settle()
    assert bench.completed
    assert sorted(n for batch in bench.batches for n in batch) == list(range(20))
    alone = [batch for batch in bench.batches if len(batch) == 1]
    assert alone == [[6], [7], [8]]
    assert bench.batches[0] == [0, 1, 2, 3, 4, 5, 9]
    assert {len(roots) for roots in bench.seen} == {7, 1, 10}
    assert [segment["n"] for segment in bench.written("write")].count(7) == 1


def test_those_that_have_ended_a_process_alone_come_last(job: Callable[..., Job]) -> None:
    bench = job()
    bench.lost("a", 6, 8)
    bench.lost("b", 6, 6, bench.id_of(6))
    bench.settle()
    assert [batch for batch in bench.batches if len(batch) == 1] == [[7], [8], [6]]


def test_losses_of_another_task_or_partition_change_nothing(job: Callable[..., Job]) -> None:
    bench = job()
    bench.lost("a", 6, 8, task="write")
    found = ReportLoss(job=bench.id, task="work", loss="b", runs=((5, 6, 8),))
    bench.propose(bench.task("work").peer, found)
    bench.settle()
    assert sorted(map(len, bench.batches)) == [10, 10]


@pytest.mark.parametrize("losses", [0, 1, 2])
def test_a_segment_is_tried_as_long_as_it_has_lost_too_few(
    losses: int, job: Callable[..., Job]
) -> None:
    bench = job()
    for number in range(losses):
        bench.lost(f"{number}", POISON, POISON, bench.id_of(POISON))
    bench.settle()
    assert bench.completed
    assert any(POISON in batch for batch in bench.batches)


def test_one_that_has_lost_too_many_is_refused_and_the_job_killed_with_its_place(
    job: Callable[..., Job],
) -> None:
    bench = job()
    for number in range(3):
        bench.lost(f"{number}", POISON, POISON, bench.id_of(POISON))
    bench.settle()
    assert not any(POISON in batch for batch in bench.batches)
    assert bench.killed() == [bench.id]
    report = bench.exceptions[0]
    assert report["type"] == "PoisonSegment"
    assert str(report["detail"]).startswith(
        "the segment that comes from partition 0 of read at position 7 has ended its worker "
        "process 3 times"
    )


def test_a_condition_takes_it_as_it_takes_exceptions(job: Callable[..., Job]) -> None:
    bench = job(flowConditions=DEAD_LETTER)
    for number in range(3):
        bench.lost(f"{number}", POISON, POISON, bench.id_of(POISON))
    bench.settle()
    assert bench.completed
    written = bench.written("write")
    (dead,) = [segment for segment in written if "bad" in segment]
    assert dead["bad"] == POISON
    assert "is not tried any more" in dead["why"]
    assert sorted(s["n"] for s in written if "n" in s) == [n for n in range(20) if n != POISON]


def test_one_that_ends_the_process_after_it_was_refused_kills_the_job(
    job: Callable[..., Job],
) -> None:
    bench = job(flowConditions=DEAD_LETTER)
    for number in range(9):
        bench.lost(f"{number}", POISON, POISON, bench.id_of(POISON))
    bench.settle()
    assert bench.proposals("kill-job")
    assert "has ended the process as well" in bench.exceptions[0]["detail"]


def test_a_task_whose_hooks_end_the_process_again_and_again_kills_the_job(
    job: Callable[..., Job],
) -> None:
    bench = job()
    for number in range(3):
        found = ReportLoss(job=bench.id, task="work", loss=f"{number}")
        bench.propose(bench.task("work").peer, found)
    bench.settle()
    assert bench.batches == []
    assert "over no segment" in bench.exceptions[0]["detail"]


def test_a_death_while_an_input_makes_segments_is_over_none_and_of_its_task(
    job: Callable[..., Job],
) -> None:
    seen: list[tuple[str, str, bool]] = []

    def made(n: int) -> Segment:
        assert isinstance(bench.recorder, Recorder)
        seen.extend((each.task, each.phase, each.over_segments) for each in bench.recorder.deaths())
        return {"n": n}

    bench = job(read=MADE, functions={"m:made": made})
    bench.settle()
    assert bench.completed
    assert set(seen) == {("read", "read-batch", False)}


def test_a_death_while_an_input_lists_its_partitions_is_of_its_task(
    job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str, bool]] = []
    partitions = GeneratorInput.partitions

    def listed(plugin: GeneratorInput) -> Sequence[str]:
        assert isinstance(bench.recorder, Recorder)
        seen.extend((each.task, each.phase, each.over_segments) for each in bench.recorder.deaths())
        return partitions(plugin)

    monkeypatch.setattr(GeneratorInput, "partitions", listed)
    bench = job(read=MADE, functions={"m:made": lambda n: {"n": n}})
    bench.settle()
    assert bench.completed
    assert seen == [("read", "partitions", False)]


def test_what_was_taken_apart_is_dropped_with_its_allocation_and_comes_again(
    job: Callable[..., Job],
) -> None:
    bench = job()
    bench.lost("a", 0, 19)
    work = bench.task("work")
    for _ in range(1_000):
        bench.round()
        if len(work.work.pieces.waiting) == 5:
            break
    bench.rewire()
    bench.settle()
    assert bench.completed
    assert {segment["n"] for segment in bench.written("write")} == set(range(20))


def test_at_most_once_nothing_is_taken_apart(job: Callable[..., Job]) -> None:
    bench = job(guarantee="at-most-once")
    bench.lost("a", 0, 19)
    bench.settle()
    assert sorted(map(len, bench.batches)) == [10, 10]
    assert set(bench.seen) == {()}


def test_a_watermark_stays_behind_the_last_part_of_its_batch(job: Callable[..., Job]) -> None:
    bench = job()
    bench.lost("a", 3, 3)
    work = bench.task("work")
    order: list[str] = []
    for _ in range(1_000):
        bench.round()
        if work.work.batch is not None:
            order.append(f"{len(work.work.batch)} of {len(work.work.pieces.waiting)}")
            assert not (work.work.pieces.waiting and work.work.controls)
        if bench.completed:
            break
    assert "9 of 1" in order
    assert "1 of 0" in order


def test_what_is_refused_leaves_no_trace_in_windows_and_goes_to_the_dead_letter() -> None:
    sums: list[int] = []

    def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: int) -> None:
        sums.append(state)

    spec = chain(SEGMENTS, batch_size=10, guarantee="exactly-once", work={"deadLetter": "bad"})
    spec["catalog"].append({**spec["catalog"][-1], "name": "bad"})
    spec["windows"] = [
        {"id": "w", "task": "work", "type": "global", "aggregation": ["sum", "n"]},
    ]
    spec["triggers"] = [
        {
            "windowId": "w",
            "type": "segment",
            "threshold": [1_000, "elements"],
            "refinement": "accumulating",
            "emit": "m:emitted",
        }
    ]
    bench = Bench(spec, {"m:same": lambda segment: segment, "m:emitted": emitted})
    work = bench.task("work")
    for _ in range(1_000):
        bench.round()
        if work.work.batch is not None and work.work.batch.ids is not None:
            break
    assert work.work.batch is not None
    assert work.work.batch.ids is not None
    id = f"{int(work.work.batch.ids[POISON]):x}"
    for number in range(3):
        args = {"job": bench.id, "task": "work", "loss": f"{number}"}
        runs = {"runs": [[0, POISON, POISON]], "id": id}
        bench.propose(work.peer, ReportLoss(**args, **runs))
    bench.crash(work)
    bench.settle()
    assert bench.completed, bench.exceptions
    assert sums[-1] == sum(range(20)) - POISON
    (letter,) = bench.written("bad")
    assert letter["segment"] == {"n": POISON}
    assert letter["error"]["type"] == "PoisonSegment"


def test_who_waits_for_a_suspect_to_be_tried_alone_says_so(job: Callable[..., Job]) -> None:
    made, somebody = job(), object()
    assert isinstance(made.recorder, Recorder)
    made.start()
    made.recorder.enter(somebody, alone=True)
    for _ in range(20):
        made.round()
    work = made.task("work")

    def why() -> tuple[Reason, str] | None:
        return diagnose(facts_of(work, made.replica(), (), 0.0, True, None))

    found = why()
    assert found is not None
    assert found[0] is Reason.SUSPECTS
    made.recorder.leave(somebody)
    made.clock.advance(RESERVED_S)
    made.settle()
    assert made.completed
    assert why() is None
