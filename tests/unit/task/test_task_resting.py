"""A job that is paused comes to rest, and goes on: inputs read nothing new, the rest arrives."""

from __future__ import annotations

import pytest
from tests.support.jobs.bench import MOMENT_S, Bench, chain

from onyx.task.source.partition import DRAIN_IDLE_S

SAME = {"m:same": lambda segment: segment}
SEGMENTS = [{"n": n} for n in range(1_000)]


def numbers(bench: Bench) -> list[int]:
    return [segment["n"] for segment in bench.written("write")]


def rounds(bench: Bench, count: int) -> None:
    for _ in range(count):
        bench.round()
        bench.clock.advance(MOMENT_S)


def reading(guarantee: str = "at-least-once", **read: object) -> Bench:
    bench = Bench(chain(SEGMENTS, read=read, guarantee=guarantee), SAME, peers={"work": 2})
    bench.start()
    return bench


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_a_paused_job_reads_nothing_new_until_it_is_resumed(guarantee: str) -> None:
    bench = reading(guarantee)
    rounds(bench, 60)
    bench.pause()
    bench.settle()
    assert bench.rests
    written = numbers(bench)
    assert 0 < len(written) < len(SEGMENTS)
    assert not bench.proposals("exhaust-input")
    bench.resume()
    bench.settle()
    assert bench.completed
    assert sorted(numbers(bench)) == list(range(len(SEGMENTS)))


def test_it_rests_when_all_has_arrived_and_is_stored_as_that() -> None:
    bench = reading(maxPending=30)
    bench.outputs["write"][0].flushes = False
    bench.settle()
    bench.pause()
    bench.settle()
    assert not bench.rests
    bench.outputs["write"][0].flushes = True
    bench.clock.advance(120.0)
    bench.settle()
    assert bench.rests
    (partition,) = bench.task("read").runtime.source.partitions.values()
    stored = partition.store.load()
    assert stored.position == stored.sent == stored.reserved == len(set(numbers(bench)))


def test_an_owner_that_comes_while_the_job_is_paused_reads_what_the_last_one_may_have_sent() -> (
    None
):
    bench = reading(maxPending=30)
    bench.outputs["write"][0].flushes = False
    bench.settle()
    written = numbers(bench)
    bench.pause()
    bench.crash(bench.task("read"))
    bench.outputs["write"][0].flushes = True
    bench.settle()
    bench.clock.advance(DRAIN_IDLE_S)
    bench.settle()
    assert bench.rests
    (partition,) = bench.task("read").runtime.source.partitions.values()
    assert set(numbers(bench)) >= set(written)
    assert partition.position >= len(written)


def test_timers_that_are_always_due_stand_still_while_a_job_rests() -> None:
    often = {"type": "timer", "period": [1, "milliseconds"]}
    bench = Bench(counting(often), {"m:emit": emit})
    bench.start()
    rounds(bench, 20)
    for _ in range(2):
        bench.pause()
        rounds(bench, 100)
        assert bench.rests
        emitted = len(bench.written("write"))
        rounds(bench, 20)
        assert len(bench.written("write")) == emitted
        bench.resume()
        rounds(bench, 100)
        assert len(bench.written("write")) > emitted


def emit(event: object, window: object, trigger: object, update: object, state: int) -> object:
    return {"n": state}


def counting(trigger: dict[str, object]) -> dict[str, object]:
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "count"], ["count", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "generator", "batchSize": 5,
             "segmentsPerSecondMax": 100},
            {"name": "count", "type": "reduce", "batchSize": 5},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 5},
        ],
        "windows": [{"id": "w", "task": "count", "type": "global", "aggregation": "count"}],
        "triggers": [{"windowId": "w", "id": "t", "emit": "m:emit",
                      "refinement": "accumulating", **trigger}],
    }  # fmt: skip
