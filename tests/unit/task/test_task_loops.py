"""Loops on the bench: what goes round comes out, in full queues, after crashes, or fails."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.support.examples import some_of
from tests.support.jobs.bench import Bench

from onyx.flow.batch import Batch
from onyx.ids import AllocationVersion
from onyx.ledger.lineage import pack_roots
from onyx.settings import Settings
from onyx.transport.interface import Channel

FORMATS = ["dicts", "arrow"]


def step(segment: dict[str, Any]) -> dict[str, Any]:
    """A step of Collatz's."""
    n = segment["n"]
    return {**segment, "n": n // 2 if n % 2 == 0 else 3 * n + 1, "steps": segment["steps"] + 1}


def steps_of(n: int) -> int:
    count = 0
    while n != 1:
        n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
    return count


SEGMENTS = [{"of": n, "n": n, "steps": 0} for n in range(2, 80)]
EXPECTED = Counter({(n, steps_of(n)): 1 for n in range(2, 80)})
FUNCTIONS = {"m:step": step, "m:same": lambda segment: segment}


def spec(batch_format: str = "dicts", laps_max: int = 500, **more: Any) -> dict[str, Any]:
    """read -> head -> tail -> write, and from tail back to head what is not 1 yet."""
    of = {} if batch_format == "dicts" else {"batchFormat": "arrow"}
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "head"], ["head", "tail"], ["tail", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 10, **of,
             "options": {"segments": SEGMENTS, "partitions": 2}, **more.pop("read", {})},
            {"name": "head", "type": "function", "fn": "m:step", "batchSize": 10,
             **more.pop("head", {})},
            {"name": "tail", "type": "function", "fn": "m:same", "batchSize": 10,
             "loopTo": "head", "lapsMax": laps_max, **more.pop("tail", {})},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 10, **of},
        ],
        "flowConditions": [
            {"from": ["tail"], "to": ["head"], "predicate": ["!=", "n", 1], "shortCircuit": True},
            {"from": ["tail"], "to": ["write"], "predicate": ["==", "n", 1]},
        ],
        **more,
    }  # fmt: skip


def written(bench: Bench) -> Counter[tuple[int, int]]:
    return Counter((each["of"], each["steps"]) for each in bench.written("write"))


def run_slowly(bench: Bench, rounds: int = 1_500) -> None:
    for _ in range(rounds):
        bench.round()
        bench.clock.advance(0.02)


def run(bench: Bench, seconds: int = 60) -> None:
    """Until nothing is done any more, with time for what is asked again."""
    for _ in range(seconds):
        if bench.completed:
            return
        bench.settle()
        bench.clock.advance(0.5)


@pytest.mark.short(2)
@pytest.mark.parametrize("batch_format", FORMATS)
@pytest.mark.parametrize("peers", [1, 2])
def test_segments_go_round_until_a_condition_lets_them_out(batch_format: str, peers: int) -> None:
    bench = Bench(spec(batch_format), FUNCTIONS, peers={"head": peers, "tail": peers})
    run(bench)
    assert bench.completed
    assert written(bench) == EXPECTED


def test_a_task_may_send_to_itself() -> None:
    job = spec()
    job["workflow"] = [["read", "tail"], ["tail", "write"]]
    job["catalog"] = [each for each in job["catalog"] if each["name"] != "head"]
    job["catalog"][1] |= {"fn": "m:step", "loopTo": "tail"}
    job["flowConditions"][0]["to"] = ["tail"]
    bench = Bench(job, FUNCTIONS)
    run(bench)
    assert bench.completed
    assert written(bench) == EXPECTED


def test_what_would_go_back_once_more_is_a_dead_letter() -> None:
    """The first step is no lap: with 20 laps a number takes 21."""
    job = spec(laps_max=20, tail={"deadLetter": "letters"})
    job["catalog"].append({"name": "letters", "type": "output", "plugin": "blackhole"})
    bench = Bench(job, FUNCTIONS)
    run(bench)
    assert bench.completed
    short = Counter({each: 1 for each in EXPECTED if each[1] <= 21})
    assert written(bench) == short
    letters = bench.written("letters")
    assert len(letters) == len(EXPECTED) - len(short)
    assert {each["segment"]["steps"] for each in letters} == {21}
    assert "gone back to head as often as it may" in str(letters[0])


def test_without_a_way_for_it_the_job_fails() -> None:
    bench = Bench(spec(laps_max=5), FUNCTIONS)
    run(bench, 5)
    assert not bench.completed
    assert [report["task"] for report in bench.exceptions] == ["tail"]
    assert "lapsMax: 5" in str(bench.exceptions[0])


@pytest.mark.short(2)
@pytest.mark.parametrize("batch_format", FORMATS)
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("rounds", some_of([30, 60, 90]))
def test_after_crashes_everything_has_come_out(
    guarantee: str, batch_format: str, rounds: int
) -> None:
    job = spec(batch_format, guarantee=guarantee)
    bench = Bench(job, FUNCTIONS, peers={"head": 2, "tail": 2})
    for name in ("tail", "read", "head"):
        for _ in range(rounds):
            bench.round()
        bench.crash(bench.task(name))
    run(bench)
    assert bench.completed
    assert set(written(bench)) == set(EXPECTED)


def test_what_comes_back_of_a_complete_tree_is_dropped() -> None:
    """An attempt was overtaken by the next, whose tree is complete: those downstream were told."""
    job = spec(laps_max=10)
    job["workflow"] = [["read", "head"], ["head", "tail"], ["tail", "count"], ["count", "write"]]
    job["catalog"].append({"name": "count", "type": "reduce"})
    job["windows"] = [{"id": "w", "task": "count", "type": "global", "aggregation": "count"}]
    job["triggers"] = [{"windowId": "w", "type": "watermark", "refinement": "accumulating",
                        "emit": "m:emitted"}]  # fmt: skip
    job["flowConditions"][1]["to"] = ["count"]
    bench = Bench(job, {**FUNCTIONS, "m:emitted": lambda *of: {"count": of[4]}})
    bench.start()
    head, tail = bench.task("head"), bench.task("tail")
    allocation = head.allocation
    allocation.event_time.passed[0] = 5
    channel = Channel(bench.id, AllocationVersion(1), tail.peer, head.peer)
    roots = pack_roots(0, 1, np.array([3, 5], np.uint64))
    batch = Batch([{"at": 3}, {"at": 5}], roots, roots, laps=np.ones(2, np.uint64))
    allocation.inbox.offer(channel, batch)
    while head.work.batch is None:
        bench.step(head)
    assert head.work.batch.segments == [{"at": 5}]
    assert list(head.work.batch.laps) == [1]


def fan_out(segment: dict[str, Any]) -> list[dict[str, Any]]:
    """Two children, down to depth 0."""
    depth = segment["depth"] - 1
    return [{**segment, "depth": depth, "path": segment["path"] + way} for way in "lr"]


@pytest.mark.parametrize("peers", [1, 2])
def test_a_loop_that_fans_out_passes_tiny_queues(peers: int) -> None:
    settings = Settings()
    tiny = replace(settings.task, inbox_segments_max=2)
    job = spec(
        laps_max=10,
        read={
            "maxPending": 40,
            "options": {
                "segments": [{"n": n, "depth": 7, "path": ""} for n in range(12)],
                "partitions": 2,
            },
        },
    )
    job["catalog"][1] |= {"fn": "m:fan_out", "batchSize": 4}
    job["flowConditions"][0]["predicate"] = [">", "depth", 0]
    job["flowConditions"][1]["predicate"] = ["==", "depth", 0]
    bench = Bench(
        job,
        {**FUNCTIONS, "m:fan_out": fan_out},
        peers={"head": peers, "tail": peers},
        settings=replace(settings, task=tiny),
    )
    run(bench, 400)
    assert bench.completed
    found = Counter((each["n"], each["path"]) for each in bench.written("write"))
    assert len(found) == 12 * 2**7
    assert set(found.values()) == {1}
