"""The last windows of a quiet stream fire, where the input follows the clock in a lull."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.jobs.feeds import Fed, Feed

from onyx.flow.batch import Segment


def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> Segment:
    return {"until": state_event["upper_bound"], "count": state}


def spec(**read: Any) -> dict[str, Any]:
    window = {"id": "tens", "task": "count", "type": "fixed", "windowKey": "t"}
    trigger = {"id": "ten", "windowId": "tens", "type": "watermark", "refinement": "accumulating"}
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "work"], ["work", "count"], ["count", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "watermarkKey": "t", **read},
            {"name": "work", "type": "function", "fn": "m:same"},
            {"name": "count", "type": "reduce"},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
        "windows": [
            {**window, "aggregation": "count", "range": [10, "seconds"]}
            | {"allowedLateness": [0, "seconds"]}
        ],
        "triggers": [{**trigger, "emit": "m:emitted"}],
    }


class World(Fed):
    def __init__(self, *partitions: str, peers: dict[str, int] | None = None, **read: Any) -> None:
        feeds = {"read": Feed(partitions)}
        read = {"idleTimeout": 2_000, "whenIdle": "clock", **read}
        super().__init__(spec(**read), feeds, functions={"m:emitted": emitted}, peers=peers or {})
        self.feed = feeds["read"]
        self.start()

    def pass_s(self, seconds: int) -> None:
        """The bench runs on while time passes."""
        ends_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < ends_s:
            self.clock.advance(0.25)
            self.settle()

    def found(self) -> dict[int, int]:
        return {each["until"]: each["count"] for each in self.written("write")}


@pytest.mark.parametrize("form", ["dicts", "arrow"])
def test_the_last_window_of_a_quiet_stream_fires(form: str) -> None:
    world = World("0", "1", peers={"work": 2}, batchFormat=form)
    world.feed.give("0", 1_000, 12_000)
    world.feed.give("1", 13_000)
    world.settle()
    assert world.found() == {9_999: 1}
    world.pass_s(6)
    assert world.found() == {9_999: 1}, "event time is at 17 s, two behind the clock"
    world.pass_s(5)
    assert world.found() == {9_999: 1, 19_999: 2}


def test_unless_the_input_asks_for_it_event_time_stays_where_it_is() -> None:
    world = World("0", whenIdle="wait")
    world.feed.give("0", 1_000, 12_000)
    world.pass_s(60)
    assert world.found() == {9_999: 1}


def test_it_fires_though_the_peers_of_the_input_changed_in_the_lull() -> None:
    world = World("0", "1", peers={"read": 2})
    world.feed.give("0", 12_000)
    world.feed.give("1", 13_000)
    world.pass_s(4)
    world.rewire(read=1)
    world.pass_s(12)
    assert world.found() == {19_999: 2}


def test_it_fires_though_a_peer_died_in_the_lull_that_had_read_it_all() -> None:
    world = World("0", peers={"read": 1})
    world.feed.give("0", 12_000)
    world.pass_s(8)
    world.crash(world.task("read"))
    world.start()
    world.pass_s(14)
    assert world.found() == {19_999: 1}


def test_what_comes_behind_a_lull_counts_where_it_is_not_late() -> None:
    world = World("0")
    world.feed.give("0", 12_000)
    world.pass_s(11)
    assert world.found() == {19_999: 1}
    world.feed.give("0", 15_000, 31_000)
    world.settle()
    assert world.found() == {19_999: 1}, "15 s is late: the clock had passed 20 s"
    world.pass_s(14)
    assert world.found() == {19_999: 1, 39_999: 1}
