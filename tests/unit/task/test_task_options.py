"""Values that are set while a job runs: its tasks take them with their next batch, and go on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clocks import ManualClock
from tests.support.jobs.bench import Bench, chain

from onyx.ids import JobId
from onyx.model.changing import with_options
from onyx.peer.work.holding import HoldTimes
from onyx.task.source import source as source_module
from onyx.task.source.source import ReadLimit, Source, part_of
from onyx.task.task import BatchTask

SAME = {"m:same": lambda segment: segment}
SEGMENTS = [{"n": n} for n in range(2_000)]


def running(read: dict[str, Any] | None = None, partitions: int = 1, **more: Any) -> Bench:
    """A job whose output makes nothing durable, so that what was read stays in flight."""
    guarantee = more.pop("guarantee", "at-least-once")
    job = chain(SEGMENTS, read=read, partitions=partitions, guarantee=guarantee)
    bench = Bench(job, SAME, **more)
    bench.start()
    for output in bench.outputs["write"]:
        output.flushes = False
    return bench


def batch_task(bench: Bench, name: str = "read", index: int = 0) -> BatchTask:
    found = bench.task(name, index)
    assert isinstance(found, BatchTask)
    return found


def source(bench: Bench, index: int = 0) -> Source:
    found = batch_task(bench, "read", index).runtime.source
    assert found is not None
    return found


def written(bench: Bench) -> int:
    return len(bench.written("write"))


def waits(bench: Bench, seconds: float, step_s: float = 0.05) -> None:
    """Time passes, in which tasks do what they can."""
    for _ in range(round(seconds / step_s)):
        bench.clock.advance(step_s)
        for _ in range(12):
            bench.round()


def test_an_input_reads_on_when_more_may_be_pending_and_waits_when_less_may() -> None:
    bench = running({"maxPending": 30})
    bench.settle()
    assert written(bench) == 30
    bench.set_options(read={"maxPending": 60})
    bench.settle()
    assert written(bench) == 60
    bench.set_options(read={"maxPending": 6})
    bench.settle()
    assert written(bench) == 60
    assert source(bench).in_flight == 60


def test_every_task_takes_other_sizes_of_batches_and_the_default_again() -> None:
    bench = running()
    bench.settle(["read"])
    bench.set_options(work={"batchSize": 50}, write={"batchSize": 70})
    bench.settle()
    assert batch_task(bench, "work").runtime.sizing.segments_max == 50
    assert batch_task(bench, "write").runtime.sizing.segments_max == 70
    assert batch_task(bench, "read").runtime.sizing.segments_max == 3
    bench.set_options(work={"batchSize": 0})
    bench.settle()
    assert not batch_task(bench, "work").runtime.sizing.fixed
    assert batch_task(bench, "work").runtime.program.event["task_map"].batch_size is None


def test_batches_wait_for_another_time_at_inputs_and_in_front_of_others() -> None:
    bench = running({"maxPending": 1_000})
    bench.set_options(read={"batchTimeout": 5_000}, work={"batchTimeout": 60_000})
    bench.round()
    work, (partition,) = batch_task(bench, "work"), source(bench).partitions.values()
    bench.settle()
    assert work.allocation.filling.timeout_s == 60.0
    bench.set_options(read={"batchTimeout": 0}, work={"batchTimeout": 0})
    bench.settle()
    assert work.allocation.filling.timeout_s == 0.0
    assert not partition.ended


def test_what_is_lost_is_read_again_after_the_time_that_is_set_last() -> None:
    bench = running({"maxPending": 30})
    bench.settle()
    assert len(bench.inputs[0].opened) == 1
    bench.set_options(read={"pendingTimeout": 3_000})
    bench.settle(["read"])
    bench.clock.advance(5.0)
    bench.settle(["read"])
    assert len(bench.inputs[0].opened) > 1
    assert source(bench).pending_timeout_ms == 3_000


def test_an_input_saves_how_far_it_is_after_so_many_segments() -> None:
    bench = running({"maxPending": 40, "checkpointSegments": 20})
    bench.outputs["write"][0].flushes = True
    before, saved = bench.clock.monotonic_s(), set()
    while bench.clock.monotonic_s() - before < 1.0:
        bench.round()
        bench.clock.advance(0.001)
        saved |= {each.store.position for each in source(bench).partitions.values()}
    steps = sorted(saved)
    assert len(steps) > 10, "time alone would have saved once"
    assert all(later - earlier >= 20 for earlier, later in pairwise(steps))


def test_an_input_that_completes_much_saves_before_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, saved = running({"maxPending": 40}), list[int]()
    monkeypatch.setattr(source_module, "SAVED_EVERY_SEGMENTS", 20)
    monkeypatch.setattr(Source, "save_frontiers", lambda self: saved.append(self.completed))
    bench.outputs["write"][0].flushes = True
    for _ in range(1_500):
        bench.round()
        bench.clock.advance(0.001)
    assert 4 <= len(saved) <= 1.5 / source_module.SAVED_AFTER_S, "nothing is due by time"
    assert all(later - earlier >= 20 for earlier, later in pairwise(saved))


@pytest.mark.short(2)
@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("batch_format", ["dicts", "arrow"])
def test_all_peers_of_an_input_together_read_no_more_than_its_limit(
    guarantee: str, batch_format: str
) -> None:
    read = {"segmentsPerSecondMax": 60, "batchFormat": batch_format}
    bench = running(read, partitions=3, peers={"read": 2}, guarantee=guarantee)
    for output in bench.outputs["write"]:
        output.flushes = True
    began_s, shown = bench.clock.monotonic_s(), []
    for _ in range(20):
        waits(bench, 0.5)
        shown.append((bench.clock.monotonic_s() - began_s, written(bench)))
    for seconds, count in shown:
        assert count <= 60 * seconds + 1
        assert count >= 60 * seconds - 30
    bench.set_options(read={"segmentsPerSecondMax": 0})
    bench.settle()
    assert written(bench) == len(SEGMENTS)


def test_a_limit_that_is_set_while_the_job_runs_holds_from_then_on() -> None:
    bench = running()
    bench.outputs["write"][0].flushes = True
    while written(bench) < 300:
        bench.round()
    bench.set_options(read={"segmentsPerSecondMax": 10})
    began_s, before = bench.clock.monotonic_s(), source(bench).completed + source(bench).in_flight
    waits(bench, 5.0)
    most = 10 * (bench.clock.monotonic_s() - began_s) + 1
    assert before + 40 < written(bench) <= before + most


def test_what_is_read_again_after_a_new_allocation_is_not_limited() -> None:
    bench = running({"maxPending": 300, "segmentsPerSecondMax": 100})
    waits(bench, 2.0)
    sent = written(bench)
    assert sent > 100
    bench.crash(bench.task("read"))
    bench.settle()
    again = written(bench) - sent
    assert again >= sent, "all of it is in flight, and comes again at once"
    assert again <= sent + 300


def test_little_is_reserved_ahead_under_a_limit() -> None:
    """Whoever takes over reads at once what may have been read: that may be new."""
    bench = running({"segmentsPerSecondMax": 5})
    waits(bench, 4.0)
    (partition,) = source(bench).partitions.values()
    assert partition.store.reserved - partition.next_position <= 10


def test_a_declaration_holds_instead_of_what_the_manifest_gives() -> None:
    bench = running({"maxPending": 30})
    bench.set_options(work={"batchSize": 50})
    bench.settle()
    bench.set_options("other", read={"maxPending": 90})
    bench.settle()
    assert written(bench) == 90
    entry = batch_task(bench, "work").runtime.program.entry
    assert entry.batch_size is None, "the declared manifest gives none"


def test_a_peer_that_comes_later_takes_the_values_too() -> None:
    bench = running({"maxPending": 30}, partitions=2)
    bench.settle()
    bench.set_options(read={"maxPending": 60})
    bench.rewire(read=2)
    bench.settle()
    assert [batch_task(bench, "read", n).runtime.sizing.pending_max for n in (0, 1)] == [60, 60]


def test_workers_report_as_often_as_the_new_time_out_needs() -> None:
    bench = Bench(chain(SEGMENTS, read={"pendingTimeout": 60_000}), SAME)
    clock, job = ManualClock(), JobId("j")
    times = HoldTimes(clock)
    assert times.due({job: bench.job}) == set()
    shorter = with_options(bench.job, {"read": {"pendingTimeout": 2_000}}, complete=False)
    assert times.due({job: shorter}) == set()
    clock.advance(0.5)
    assert times.due({job: shorter}) == {job}


@given(
    st.integers(1, 10_000),
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.sets(st.integers(5, 40)),
)
def test_the_parts_of_peers_add_up_to_the_limit(
    limit: int, owners: list[int], ended: set[int]
) -> None:
    numbers = range(5, 5 + len(owners))
    parts = [
        part_of(limit, [n for n in numbers if owners[n - 5] == peer], numbers, ended)
        for peer in range(4)
    ]
    if all(number in ended for number in numbers):
        return
    assert sum(parts) == pytest.approx(limit)


@given(
    st.integers(1, 500),
    st.lists(
        st.tuples(st.floats(0, 2), st.integers(1, 900), st.integers(0, 300)),
        min_size=1,
        max_size=30,
    ),
)
def test_a_limit_counts_what_is_new_and_nothing_else(
    limit: int, reads: list[tuple[float, int, int]]
) -> None:
    clock = ManualClock()
    reader, new = ReadLimit(clock), 0
    reader.change(float(limit))
    for wait_s, wanted, again in reads:
        clock.advance(wait_s)
        allowed = reader.allowed(wanted, again)
        assert min(wanted, again) <= allowed <= wanted
        reader.spend(allowed, again)
        new += max(0, allowed - again)
    assert new <= limit * (clock.monotonic_s() + 1) + 1


def test_values_of_a_task_leave_the_others_alone() -> None:
    job = Bench(chain(SEGMENTS), SAME).job
    found = with_options(job, {"work": {"batchSize": 9}}, complete=False)
    assert [each.batch_size for each in found.catalog] == [3, 9, 3]
    assert with_options(job, {}, complete=False) is job
