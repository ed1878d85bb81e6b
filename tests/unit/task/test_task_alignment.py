"""Inputs with `maxDrift` wait for each other in event time, in whatever peers and formats."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.jobs.feeds import Fed, Feed

from onyx.peer.watch.stall_watch import facts_of
from onyx.reports.stalls import Reason
from onyx.task.diagnosis import allowed_s, diagnose
from onyx.windows.watermarks import IDLE

MINUTE = 60_000


def spec(inputs: dict[str, dict[str, Any]], **job: Any) -> dict[str, Any]:
    reads = [
        {"name": name, "type": "input", "plugin": "sequence", "batchSize": 10} | more
        for name, more in inputs.items()
    ]
    write = {"name": "write", "type": "output", "plugin": "blackhole"}
    edges = [[name, "write"] for name in inputs]
    return {"maxDrift": "10min", "workflow": edges, "catalog": [*reads, write], **job}


class World(Fed):
    """Inputs `left` and `right`; `right` is far ahead."""

    def __init__(
        self,
        peers: dict[str, int] | None = None,
        times: tuple[str, ...] = ("left", "right"),
        read: dict[str, Any] | None = None,
        encoded: bool = False,
        **job: Any,
    ) -> None:
        """`times`: the inputs that say what time their segments have."""
        feeds = {"left": Feed(["l0"]), "right": Feed(["r0", "r1"])}
        inputs: dict[str, dict[str, Any]] = {
            name: {"watermarkKey": "t"} if name in times else {} for name in feeds
        }
        inputs = {name: {**each, **(read or {})} for name, each in inputs.items()}
        super().__init__(spec(inputs, **job), feeds, peers=peers, short_circuit=not encoded)

    def give(self, partition: str, *minutes: int) -> None:
        feed = next(feed for feed in self.feeds.values() if partition in feed.given)
        feed.give(partition, *(minute * MINUTE for minute in minutes))

    def minutes(self) -> list[int]:
        return sorted(each["t"] // MINUTE for each in self.written("write"))

    def pass_s(self, seconds: float) -> None:
        ends_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < ends_s:
            self.clock.advance(0.25)
            self.settle()

    def why(self, name: str) -> tuple[Reason, str] | None:
        facts = facts_of(self.task(name), self.replica(), (), self.clock.monotonic_s(), True, None)
        return diagnose(facts)


@pytest.mark.parametrize("form", ["dicts", "arrow"])
@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
@pytest.mark.parametrize(("peers", "encoded"), [({}, False), ({"right": 2}, True)])
def test_an_input_that_is_ahead_waits_for_the_slowest(form, guarantee, peers, encoded):
    world = World(peers, encoded=encoded, read={"batchFormat": form}, guarantee=guarantee)
    world.give("l0", 0)
    world.give("r0", *range(600))
    world.give("r1", *range(300, 310))
    world.start()
    world.settle()
    # By whole batches of ten: 0 to 9, and 10 to 19, for 9 is not ahead by more than ten.
    assert world.minutes() == sorted([0, *range(20), *range(300, 310)])
    assert world.why("right") == (Reason.AHEAD, "waits for input left: 19 min ahead")
    world.give("l0", 250)
    world.settle()
    assert world.minutes() == sorted([0, 250, *range(270), *range(300, 310)])
    world.feeds["left"].end()
    world.feeds["right"].end("r1")
    world.settle()
    assert world.minutes() == sorted([0, 250, *range(600), *range(300, 310)])
    world.feeds["right"].end()
    world.settle()
    assert world.completed


def test_partitions_of_one_input_wait_for_each_other():
    world = World()
    world.feeds["left"].end()
    world.give("r0", *range(600))
    world.give("r1", *range(5))
    world.start()
    world.settle()
    assert max(world.minutes()) == 19
    assert world.why("right") == (Reason.AHEAD, "waits for input right: 15 min ahead")


def test_an_input_that_has_given_no_time_is_waited_for_and_named():
    world = World()
    world.give("r0", *range(600))
    world.give("r1", *range(600))
    world.start()
    world.settle()
    assert len(world.minutes()) == 20, "a batch of each, to know their time"
    reason, why = world.why("right") or (None, "")
    assert reason is Reason.UNAVAILABLE
    assert why.startswith("waits for input left, which has given no event time yet (maxDrift)")
    world.feeds["left"].end()
    world.settle()
    assert len(world.minutes()) == 1_200


def test_an_idle_input_holds_nobody_back_and_one_that_waits_is_not_idle():
    world = World(read={"idleTimeout": 2_000})
    world.give("l0", 0)
    world.give("r0", *range(15))
    world.feeds["right"].end("r1")
    world.start()
    world.settle()
    assert max(world.minutes()) == 14
    world.give("r0", *range(15, 600))
    world.settle()
    assert max(world.minutes()) == 14, "14 is ahead of 0 by more than ten"
    world.give("l0", 1)
    world.pass_s(1)
    world.give("l0", 2)
    world.pass_s(1)
    assert max(world.minutes()) == 14
    world.pass_s(3)
    assert max(world.minutes()) == 599
    world.give("l0", 300)
    world.give("r0", *range(600, 700))
    world.settle()
    assert max(world.minutes()) == 599, "it is awake again"


def test_what_waits_is_not_idle_when_the_slowest_has_caught_up():
    world = World(read={"idleTimeout": 2_000})
    world.feeds["right"].end("r1")
    world.give("r0", 100)
    world.start()
    world.pass_s(6)
    source = world.task("right").runtime.source
    assert source.mark() is IDLE
    for minute in range(10, 16):
        world.give("l0", minute)
        world.pass_s(1)
    assert source.mark() == 100 * MINUTE


def test_inputs_wait_after_peers_came_and_died_in_the_middle():
    world = World({"right": 1}, guarantee="exactly-once")
    world.give("l0", 0)
    world.give("r0", *range(600))
    world.give("r1", *range(600))
    world.start()
    world.settle()
    for change in (
        lambda: world.rewire(right=2),
        lambda: world.crash(world.task("right")),
        lambda: world.crash(world.task("left")),
        lambda: world.rewire(right=1),
    ):
        change()
        world.start()
        world.settle()
        assert max(world.minutes()) == 19, "nothing more was read"
    world.give("l0", 600)
    world.feeds["left"].end()
    world.feeds["right"].end()
    world.settle()
    assert world.completed
    assert set(world.minutes()) == {*range(601)}


@pytest.mark.parametrize("ends", ["pause", "drain"])
def test_a_job_comes_to_rest_though_an_input_waits(ends):
    world = World({"right": 2}, guarantee="exactly-once")
    world.give("l0", 0)
    world.give("r0", *range(600))
    world.give("r1", *range(600))
    world.start()
    world.settle()
    world.crash(world.task("right"))
    world.start()
    getattr(world, ends)()
    world.pass_s(4)
    assert world.rests if ends == "pause" else world.completed


def test_an_input_without_times_neither_waits_nor_holds_anybody_back():
    world = World(times=("right",))
    world.give("l0", *range(50))
    world.give("r0", *range(900, 990))
    world.give("r1", 900)
    world.start()
    world.settle()
    assert world.minutes() == sorted([*range(50), 900, *range(900, 920)])


def test_to_wait_for_a_slower_input_is_no_stall():
    world = World()
    assert allowed_s(Reason.AHEAD, world.job.entry("right"), world.job) > 10**9
