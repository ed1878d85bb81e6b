"""What comes out of a loop is what a plain loop gives, whatever fans out, crashes, or is full."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.examples import examples
from tests.support.jobs.bench import Bench

from onyx.settings import Settings

Walk = tuple[int, str]
EDGES = {0: [1, 2], 1: [2], 2: [0, 3, 3], 3: []}
"""A graph with cycles; from 3 nothing leads on."""


def walk(segment: dict[str, Any]) -> list[dict[str, Any]]:
    """To all neighbours; where there are none, to itself."""
    path = segment["path"]
    ways = EDGES[int(path[-1])] or [int(path[-1])]
    return [{**segment, "path": f"{path}{way}", "left": segment["left"] - 1} for way in ways]


def plainly(starts: list[Walk]) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for n, (left, start) in enumerate(starts):
        paths = [start]
        for _ in range(left):
            paths = [each["path"] for path in paths for each in walk({"path": path, "left": 0})]
        found.update((n, path) for path in paths)
    return found


def job(starts: list[Walk], batch: int) -> dict[str, Any]:
    segments = [{"n": n, "left": left, "path": at} for n, (left, at) in enumerate(starts)]
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "walk"], ["walk", "turn"], ["turn", "count"], ["count", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": batch,
             "maxPending": 8, "options": {"segments": segments, "partitions": 2}},
            {"name": "walk", "type": "function", "fn": "m:walk", "batchSize": batch},
            {"name": "turn", "type": "function", "fn": "m:same", "batchSize": batch,
             "loopTo": "walk", "lapsMax": 8},
            {"name": "count", "type": "reduce", "groupByKey": ["n", "path"],
             "fluxPolicy": "continue"},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": batch},
        ],
        "flowConditions": [
            {"from": ["turn"], "to": ["walk"], "predicate": [">", "left", 0]},
            {"from": ["turn"], "to": ["count"], "predicate": ["==", "left", 0]},
        ],
        "windows": [{"id": "w", "task": "count", "type": "global", "aggregation": "count"}],
        "triggers": [{"windowId": "w", "type": "watermark", "refinement": "accumulating",
                      "emit": "m:emitted"}],
    }  # fmt: skip


def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    return {**state_event["group_key"], "times": state}


FUNCTIONS = {"m:walk": walk, "m:same": lambda segment: segment, "m:emitted": emitted}


@settings(max_examples=examples(40), deadline=None)
@given(
    starts=st.lists(st.tuples(st.integers(1, 5), st.sampled_from("0123")), min_size=1, max_size=9),
    batch=st.integers(1, 6),
    room=st.integers(1, 9),
    peers=st.integers(1, 2),
    crashes=st.lists(
        st.tuples(st.sampled_from(["read", "walk", "turn"]), st.integers(5, 80)), max_size=3
    ),
)
def test_each_walk_counts_as_often_as_there_are_ways(
    starts: list[Walk], batch: int, room: int, peers: int, crashes: list[tuple[str, int]]
) -> None:
    of_tasks = replace(Settings().task, inbox_segments_max=room)
    bench = Bench(
        job(starts, batch),
        FUNCTIONS,
        peers={"walk": peers, "turn": peers},
        settings=replace(Settings(), task=of_tasks),
    )
    for name, rounds in crashes:
        for _ in range(rounds):
            bench.round()
        bench.crash(bench.task(name))
    for _ in range(400):
        if bench.completed:
            break
        bench.settle()
        bench.clock.advance(0.5)
    assert bench.completed
    last = {(each["n"], each["path"]): each["times"] for each in bench.written("write")}
    assert last == dict(plainly(starts))
