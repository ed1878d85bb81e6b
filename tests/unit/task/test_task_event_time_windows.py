"""Windows that close with the watermark and take nothing after it: nothing may ever come late.

Two inputs of different pace, a function, windows over 10 s of what comes, and windows over a minute
of what those emit; peers die, come and go. A watermark that is too early anywhere loses segments,
which are counted here.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from tests.support.examples import some_of
from tests.support.jobs.feeds import Fed, Feed

from onyx.flow.batch import Segment
from onyx.telemetry.catalog import LATE_SEGMENTS, Metric
from onyx.telemetry.interface import TaskMetrics

DISORDER_MS = 3_000
SPAN_MS = 240_000


def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> Segment:
    return {
        "key": state_event["group_key"],
        "time": state_event["upper_bound"],
        "count": state,
    }


def spec() -> dict[str, Any]:
    read = {"type": "input", "plugin": "sequence", "batchSize": 4, "watermarkKey": "time"}
    read |= {"allowedDisorder": [DISORDER_MS, "milliseconds"], "maxPending": 40}
    group = {"batchSize": 4, "groupByKey": "key", "minPeers": 1, "fluxPolicy": "continue"}
    window = {"type": "fixed", "windowKey": "time", "allowedLateness": [0, "seconds"]}
    trigger = {"type": "watermark", "refinement": "accumulating", "emit": "m:emitted"}
    return {
        "guarantee": "exactly-once",
        "workflow": [
            ["fast", "work"],
            ["slow", "work"],
            ["work", "short"],
            ["short", "long"],
            ["long", "write"],
        ],
        "catalog": [
            {"name": "fast", **read},
            {"name": "slow", **read, "idleTimeout": 5_000},
            {"name": "work", "type": "function", "batchSize": 4, "fn": "m:same"},
            {"name": "short", "type": "reduce", **group},
            {"name": "long", "type": "reduce", "batchSize": 4},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 4},
        ],
        "windows": [
            {**window, "id": "tens", "task": "short", "aggregation": "count"}
            | {"range": [10, "seconds"]},
            {**window, "id": "minutes", "task": "long", "aggregation": ["sum", "count"]}
            | {"range": [1, "minute"]},
        ],
        "triggers": [
            {**trigger, "id": "ten", "windowId": "tens"},
            {**trigger, "id": "minute", "windowId": "minutes"},
        ],
    }


class Late(TaskMetrics):
    def __init__(self) -> None:
        self.segments = 0

    def add(self, metric: Metric, amount: float = 1) -> None:
        if metric is LATE_SEGMENTS:
            self.segments += int(amount)


class World(Fed):
    """The job, what it reads, and what must come out."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.reported = Late()
        feeds = {"fast": Feed("012"), "slow": Feed("01")}
        peers = {"fast": 2, "work": 2, "short": 2, "long": 2}
        super().__init__(spec(), feeds, peers=peers, functions={"m:emitted": emitted})
        self.expected: Counter[int] = Counter()
        """Segments of each minute."""

    def metrics(self, *_: Any) -> TaskMetrics:
        return self.reported

    def give(self, until_ms: int, *feeds: str) -> None:
        """What these have until then, a segment about every second, out of order."""
        for name in feeds:
            for given in self.feeds[name].given.values():
                times = range(1_000 * len(given), until_ms, 1_000)
                for time_ms in times:
                    jitter = self.chance.randrange(-DISORDER_MS, 1)
                    segment = {"time": max(0, time_ms + jitter), "key": self.chance.choice("abcd")}
                    given.append(segment)
                    self.expected[segment["time"] // 60_000] += 1

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.round()
            self.clock.advance(0.05)

    def finish(self) -> None:
        for feed in self.feeds.values():
            feed.end()
        for _ in range(20_000):
            self.run(1)
            if self.completed:
                return
        raise AssertionError("the job does not complete")

    def found(self) -> dict[int, int]:
        return {segment["time"] // 60_000: segment["count"] for segment in self.written("write")}


def test_windows_of_windows_close_behind_the_slowest_partition() -> None:
    world = World(0)
    world.start()
    world.give(130_000, "fast")
    world.settle()
    assert world.found() == {}, "the slow one has said nothing"
    world.give(130_000, "slow")
    world.settle()
    assert set(world.found()) == {0, 1}, "two minutes are over"
    world.give(SPAN_MS, "fast")
    world.settle()
    assert set(world.found()) == {0, 1}
    world.clock.advance(5.0)
    world.settle()
    world.give(SPAN_MS + 1_000, "fast")
    world.settle()
    assert set(world.found()) == {0, 1, 2}, "the slow one is idle"
    world.finish()
    assert world.reported.segments == 0
    assert world.found() == world.expected


CHANGES: tuple[dict[str, int], ...] = (
    {"work": 1},
    {"fast": 1},
    {"short": 3},
    {"long": 1},
    {"short": 1, "work": 2},
    {"fast": 3},
)


@pytest.mark.parametrize("seed", some_of(range(4)))
def test_nothing_comes_late_whoever_dies_or_comes(seed: int) -> None:
    world = World(seed)
    chance = world.chance
    world.start()
    for until_ms in range(40_000, SPAN_MS + 1, 40_000):
        world.give(until_ms, "fast")
        world.run(chance.randrange(5, 60))
        world.give(until_ms, "slow")
        world.run(chance.randrange(5, 60))
        if chance.random() < 0.5:
            world.crash(chance.choice(list(world.tasks.values())))
        else:
            world.rewire(**chance.choice(CHANGES))
    world.finish()
    assert world.reported.segments == 0
    assert world.found() == world.expected
