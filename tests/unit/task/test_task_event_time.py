"""Watermarks and epochs from the inputs to a windowed task, over peers and re-allocations.

What the windowed task does with them is not looked at here: its windows are left out.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from tests.support.examples import some_of
from tests.support.jobs.feeds import Fed, Feed

from onyx.flow.batch import Segment
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.operators import building
from onyx.replica.spec import JobSpec
from onyx.settings import Settings
from onyx.task.channels.event_time import EventTime, InputOrigin, needs
from onyx.transport.interface import FRONTIERS_MAX, Control, ControlKind
from onyx.windows.watermarks import IDLE


@pytest.fixture(autouse=True)
def _windows_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "definition_of", lambda job, task, resolve: None)


class Watched(Fed):
    """A fed bench whose windowed tasks take notice of nothing but event time."""

    def _spec_of(self, spec: JobSpec) -> JobSpec:
        tasks = tuple(msgspec.structs.replace(task, windowed=False) for task in spec.tasks)
        return msgspec.structs.replace(spec, tasks=tasks)

    def watermark(self, task: str = "write", index: int = 0) -> int | None:
        return self.event_time(task, index).watermark

    def event_time(self, task: str = "write", index: int = 0) -> EventTime:
        found = self.task(task, index).allocation.event_time
        assert found is not None
        return found


def spec(*inputs: str, guarantee: str = "exactly-once", **read: Any) -> dict[str, Any]:
    """The inputs -> work -> write, and write is windowed."""
    read = {"watermarkKey": "t", **read}
    return {
        "guarantee": guarantee,
        "workflow": [*([each, "work"] for each in inputs), ["work", "write"]],
        "catalog": [
            *(
                {"name": each, "type": "input", "plugin": "sequence", "batchSize": 3, **read}
                for each in inputs
            ),
            {"name": "work", "type": "function", "batchSize": 3, "fn": "m:same"},
            {
                "name": "write",
                "type": "output",
                "plugin": "blackhole",
                "batchSize": 3,
                **({"deduplicate": False} if guarantee != "exactly-once" else {}),
            },
        ],
        "windows": [{"id": "counted", "task": "write", "type": "global", "aggregation": "count"}],
    }


def fed(*partitions: str, peers: dict[str, int] | None = None, **read: Any) -> tuple[Watched, Feed]:
    """One input with these partitions."""
    feed = Feed(partitions)
    bench = Watched(spec("read", **read), {"read": feed}, peers=peers)
    bench.start()
    return bench, feed


EPOCH_S = Settings().ledger.frontier_interval_s


def pass_epochs(bench: Watched, count: int) -> None:
    for _ in range(count):
        bench.outputs["write"][0].flush()
        bench.settle()
        bench.clock.advance(EPOCH_S)
        bench.settle()


def test_the_slower_of_two_inputs_holds_the_watermark_back() -> None:
    feeds = {"fast": Feed(["0"]), "slow": Feed(["0"])}
    bench = Watched(spec("fast", "slow"), feeds, peers={"work": 2})
    bench.start()
    feeds["fast"].give("0", 10, 20, 30)
    bench.settle()
    assert bench.watermark() is None, "the slow one has said nothing"
    feeds["slow"].give("0", 5)
    bench.settle()
    assert bench.watermark() == 5
    feeds["fast"].give("0", 100)
    bench.settle()
    assert bench.watermark() == 5
    feeds["slow"].give("0", 50)
    bench.settle()
    assert bench.watermark() == 50
    assert {bench.watermark("work", index) for index in (0, 1)} == {50}


def test_the_watermark_stays_behind_by_the_disorder_allowed() -> None:
    bench, feed = fed("0", allowedDisorder=[2, "seconds"])
    feed.give("0", 10_000, 11_500, 9_000)
    bench.settle()
    assert bench.watermark() == 9_500


def test_a_partition_that_has_given_nothing_holds_back_until_it_is_idle() -> None:
    bench, feed = fed("0", "1", idleTimeout=3_000)
    feed.give("0", 10)
    bench.settle()
    assert bench.watermark() is None
    bench.clock.advance(3.0)
    feed.give("0", 20)
    bench.settle()
    assert bench.watermark() == 20
    feed.give("1", 5, 21)
    feed.give("0", 30)
    bench.settle()
    assert bench.watermark() == 21, "it is awake, and counts again"


def test_an_input_that_is_idle_says_so_and_others_go_on() -> None:
    feeds = {"busy": Feed(["0"]), "quiet": Feed(["0"])}
    bench = Watched(spec("busy", "quiet", idleTimeout=3_000), feeds)
    bench.start()
    feeds["quiet"].give("0", 7)
    feeds["busy"].give("0", 10)
    bench.settle()
    assert bench.watermark() == 7
    bench.clock.advance(3.0)
    feeds["busy"].give("0", 20)
    bench.settle()
    assert bench.watermark() == 20
    feeds["quiet"].give("0", 8)
    bench.settle()
    assert bench.watermark() == 20, "who comes late does not pull it back"
    assert bench.event_time("work").mark == 8


def test_who_has_no_room_is_not_idle() -> None:
    bench, feed = fed("0", "1", idleTimeout=3_000, maxPending=3)
    bench.outputs["write"][0].flushes = False
    feed.give("0", 10, 11, 12)
    feed.give("1", 1)
    bench.settle()
    assert bench.watermark() is None
    bench.clock.advance(60.0)
    bench.settle()
    assert bench.watermark() is None, "there was no room to read what it has"


def test_exhausted_partitions_are_left_out_and_at_the_end_all_is_idle() -> None:
    bench, feed = fed("0", "1")
    feed.give("0", 10)
    feed.give("1", 20)
    bench.settle()
    assert bench.watermark() == 10
    feed.end("0")
    bench.settle()
    assert bench.watermark() == 20
    feed.end("1")
    bench.settle()
    assert bench.completed
    assert bench.watermark() == 20
    assert bench.event_time().mark is IDLE


def test_an_input_without_event_times_holds_nothing_back() -> None:
    job = spec("read", "plain")
    del job["catalog"][1]["watermarkKey"]
    feeds = {"read": Feed(["0"]), "plain": Feed(["0"])}
    bench = Watched(job, feeds)
    bench.start()
    feeds["read"].give("0", 10)
    bench.settle()
    assert bench.watermark() == 10


def test_a_peer_without_partitions_holds_nothing_back() -> None:
    bench, feed = fed("0", peers={"read": 3, "work": 2})
    feed.give("0", 10)
    bench.settle()
    assert bench.watermark() == 10


def test_a_watermark_comes_at_once_when_there_is_nothing_more_to_do_and_seldom_otherwise() -> None:
    bench, feed = fed("0")
    feed.give("0", *range(30))
    reported: list[int | None] = []
    for _ in range(400):
        bench.round()
        if bench.watermark() not in reported:
            reported.append(bench.watermark())
    assert reported == [None, 2, 29], "after the first batch, and after the last"


def test_what_is_read_again_does_not_raise_the_watermark() -> None:
    tries: list[int] = []

    def twice(segment: Segment) -> Segment:
        tries.append(segment["t"])
        if segment["t"] == 10 and tries.count(10) < 3:
            raise ValueError("not yet")
        return segment

    job = spec("read")
    retry = {"from": "work", "to": "none", "predicate": "m:always", "thrownException": True}
    job["flowConditions"] = [{**retry, "shortCircuit": True, "action": "retry"}]
    feed = Feed(["0"])
    functions = {"m:same": twice, "m:always": lambda *_: True}
    bench = Watched(job, {"read": feed}, functions=functions)
    bench.start()
    feed.give("0", 10, 30)
    for _ in range(3):
        bench.settle()
        bench.clock.advance(1.0)
    assert tries.count(10) == 3
    assert bench.watermark() == 30


class Losing:
    """What a windowed task would have: all that it was given, less what was not durable when the
    job was re-allocated."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        feeds = {"a": Feed(["0", "1", "2"]), "b": Feed(["0"])}
        job = spec("a", "b", maxPending=9, allowedDisorder=[4, "milliseconds"])
        self.bench = Watched(job, feeds, peers={"a": 2, "work": 3})
        self.bench.start()
        for feed in feeds.values():
            for partition in feed.given:
                feed.give(partition, *(n + self.chance.randrange(5) for n in range(60)))
        self.all = [
            segment for feed in feeds.values() for each in feed.given.values() for segment in each
        ]
        for number, segment in enumerate(self.all):
            segment["id"] = number
        self.output = self.bench.outputs["write"][0]
        self.output.flushes = False
        self.version = 1
        self.taken = 0
        self.has: dict[int, int] = {}
        """Where in the output each segment is that was not lost."""

    def round(self) -> None:
        self.bench.round()
        self.bench.clock.advance(0.01)
        for place, segment in enumerate(self.output.written[self.taken :], self.taken):
            self.has.setdefault(segment["id"], place)
        self.taken = len(self.output.written)
        if self.chance.random() < 0.05:
            self.output.durable_count = self.taken

    def rewire(self, **counts: int) -> int:
        """How much is lost."""
        before = len(self.has)
        durable = self.output.durable_count
        self.has = {number: place for number, place in self.has.items() if place < durable}
        self.bench.rewire(**counts)
        self.version += 1
        return before - len(self.has)

    def missing(self) -> list[Segment]:
        """What should have arrived by the watermark and has not."""
        live = self.bench.task("write").allocation
        if live.event_time is None or live.wiring.version != self.version:
            return []
        watermark = live.event_time.watermark
        if watermark is None:
            return []
        return [each for each in self.all if each["t"] < watermark and each["id"] not in self.has]


@pytest.mark.parametrize("seed", some_of(range(12)))
def test_what_is_older_than_the_watermark_has_arrived_whatever_was_lost(seed: int) -> None:
    """What was lost is sent again before anything of the new version says its time has passed."""
    world = Losing(seed)
    lost = 0
    for counts in ({"work": 2}, {"a": 1}, {"work": 1}, {}):
        for _ in range(world.chance.randrange(30, 120)):
            world.round()
            assert not world.missing()
        lost += world.rewire(**counts)
    assert lost, "or nothing was tried"
    for feed in world.bench.feeds.values():
        feed.end()
    while not world.bench.completed:
        world.round()
        assert not world.missing()
    watermark = world.bench.watermark()
    assert watermark is not None
    assert watermark > 50, "it has come along"


def test_a_new_version_begins_with_nothing_said_and_goes_on_from_what_inputs_know() -> None:
    bench, feed = fed("0", "1", peers={"work": 2})
    feed.give("0", 50)
    feed.give("1", 60)
    bench.settle()
    assert bench.watermark() == 50
    bench.rewire(work=1)
    bench.start()
    assert bench.watermark() is None
    bench.settle()
    assert bench.watermark() == 50, "the peer that stayed remembers it"


def test_a_partition_that_comes_to_another_peer_starts_anew() -> None:
    bench, feed = fed("0", "1", peers={"read": 2})
    feed.give("0", 50)
    feed.give("1", 60)
    pass_epochs(bench, 2)
    assert bench.watermark() == 50
    bench.rewire(read=1)
    bench.settle()
    assert bench.watermark() is None, "what had been read of partition 1 is not known here"
    feed.give("1", 61)
    bench.settle()
    assert bench.watermark() == 50


def test_a_partition_that_comes_back_starts_anew() -> None:
    bench, feed = fed("0", "1")
    feed.give("0", 50)
    feed.give("1", 60)
    pass_epochs(bench, 2)
    bench.rewire(read=2)
    feed.give("1", 70, 71)
    pass_epochs(bench, 2)
    assert bench.watermark() == 50
    bench.rewire(read=1)
    bench.settle()
    assert bench.watermark() is None, "others may have read it further, or not so far"


def test_a_batch_kept_over_a_reallocation_goes_before_watermarks() -> None:
    feed = Feed(["0"])
    bench = Watched(spec("read", guarantee="at-most-once"), {"read": feed})
    bench.start()
    read = bench.task("read")
    feed.give("0", 1, 2, 3, 4, 5, 6)
    while read.work.batch is None:
        bench.step(read)
    bench.rewire()
    bench.settle()
    assert [segment["t"] for segment in bench.written("write")] == [1, 2, 3, 4, 5, 6]
    assert bench.watermark() == 6


def test_frontiers_come_to_the_windowed_task_when_they_are_stored() -> None:
    feeds = {"a": Feed(["0", "1"]), "b": Feed(["0"])}
    bench = Watched(spec("a", "b"), feeds, peers={"work": 2})
    bench.start()
    feeds["a"].give("0", 1, 2, 3)
    feeds["a"].give("1", 1)
    feeds["b"].give("0", 1, 2)
    bench.settle()
    bench.outputs["write"][0].flush()
    bench.slow = []
    for _ in range(3):
        bench.clock.advance(EPOCH_S)
        bench.settle()
    assert bench.event_time().take_frontiers() == {}, "complete, and not stored yet"
    bench.finish_slow()
    pass_epochs(bench, 2)
    assert bench.event_time().take_frontiers() == {0: 3, 1: 1, 2: 2}
    pass_epochs(bench, 2)
    assert bench.event_time().take_frontiers() == {}, "none has risen since"
    feeds["a"].give("1", 2, 3)
    bench.settle()
    pass_epochs(bench, 3)
    assert bench.event_time().take_frontiers() == {1: 3}


def test_an_input_that_is_held_up_holds_up_epochs() -> None:
    feeds = {"a": Feed(["0"]), "b": Feed(["0"])}
    bench = Watched(spec("a", "b"), feeds)
    bench.start()
    feeds["a"].give("0", 1, 2, 3)
    bench.settle()
    bench.outputs["write"][0].flush()
    for _ in range(4):
        bench.clock.advance(EPOCH_S)
        bench.settle(["a", "work", "write"])
    assert bench.event_time().take_frontiers() == {}, "a copy may be under way from b"
    bench.settle()
    assert bench.event_time().take_frontiers() == {0: 3}


def test_at_least_once_needs_no_epochs() -> None:
    feed = Feed(["0"])
    bench = Watched(spec("read", guarantee="at-least-once"), {"read": feed})
    bench.start()
    feed.give("0", 1, 2, 3)
    bench.settle()
    pass_epochs(bench, 3)
    assert bench.event_time().take_frontiers() == {}
    assert bench.watermark() == 3


def windowed_in_between() -> dict[str, Any]:
    """read -> work -> write, and work is windowed as well as write."""
    job = spec("read")
    job["windows"].append({"id": "first", "task": "work", "type": "global", "aggregation": "count"})
    return job


def test_a_windowed_task_withholds_its_watermark_until_it_is_released() -> None:
    feed = Feed(["0"])
    bench = Watched(windowed_in_between(), {"read": feed})
    bench.start()
    feed.give("0", 10)
    bench.settle()
    event_time = bench.event_time("work")
    assert (event_time.watermark, bench.watermark()) == (10, None)
    mark = event_time.mark
    feed.give("0", 20)
    bench.settle()
    event_time.release(mark)
    bench.settle()
    assert (event_time.watermark, bench.watermark()) == (20, 10)


def test_the_frontiers_of_a_windowed_task_go_down_with_the_next_epoch() -> None:
    feed = Feed(["0"])
    bench = Watched(windowed_in_between(), {"read": feed})
    bench.start()
    pass_epochs(bench, 1)
    bench.event_time("work").add_frontiers({7: 3})
    bench.settle()
    assert bench.event_time().take_frontiers() == {}
    pass_epochs(bench, 1)
    assert bench.event_time().take_frontiers() == {7: 3}


def test_many_frontiers_go_in_several_items() -> None:
    needed = needs(parse_job(spec("read")), "read")
    assert needed is not None
    rising = dict.fromkeys(range(FRONTIERS_MAX + 1), 1)
    event_time = EventTime(needed, (), InputOrigin(lambda: IDLE, lambda: rising, 5.0))
    reported = list(event_time.due(0.0, idle=True))
    epochs = [control for control in reported if control.kind is ControlKind.EPOCH]
    assert [(each.epoch, len(each.frontiers)) for each in epochs] == [(1, FRONTIERS_MAX), (1, 1)]
    assert dict(pair for each in epochs for pair in each.frontiers) == rising
    assert reported[0] == Control(ControlKind.WATERMARK, time_ms=None)
    assert list(event_time.due(4.9, idle=True)) == []
    assert list(event_time.due(25.0, idle=True)) == [Control(ControlKind.EPOCH, epoch=6)]


def parse_job(job: dict[str, Any]) -> Job:
    kind = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "job"}}
    return parse_mapping({**kind, "spec": job})


def branched(**more: Any) -> dict[str, Any]:
    """read -> work -> write, and read -> aside; only write has windows."""
    job = spec("read")
    job["workflow"].append(["read", "aside"])
    aside = {"name": "aside", "type": "output", "plugin": "blackhole", "batchSize": 3}
    job["catalog"].append(aside)
    if more.get("guarantee") == "at-least-once" and "windows" not in more:
        job["catalog"][2]["deduplicate"] = False
    return {**job, **more}


def test_only_tasks_with_windows_below_need_event_time() -> None:
    job = parse_job(branched(guarantee="at-least-once"))
    read, work, write = (needs(job, task) for task in ("read", "work", "write"))
    assert needs(job, "aside") is None
    assert read is not None
    assert read.children == {"work"}
    assert work is not None
    assert work.children == {"write"}
    assert write is not None
    assert (write.children, write.windowed) == (frozenset(), True)


def test_outputs_that_write_exactly_once_need_epochs() -> None:
    job = parse_job(branched())
    read, aside = needs(job, "read"), needs(job, "aside")
    assert read is not None
    assert read.children == {"work", "aside"}
    assert aside is not None
    assert aside.windowed


def test_a_job_without_windows_needs_nothing_and_sends_nothing() -> None:
    job = branched(windows=[], guarantee="at-least-once")
    feed = Feed(["0"])
    bench = Watched(job, {"read": feed})
    bench.start()
    feed.give("0", "no time, and nobody asks")
    feed.end()
    bench.settle()
    assert bench.completed
    assert all(task.allocation.event_time is None for task in bench.tasks.values())


def test_without_watermarks_and_ids_windows_need_nothing_either() -> None:
    job = spec("read", guarantee="at-least-once")
    del job["catalog"][0]["watermarkKey"]
    assert needs(parse_job(job), "write") is None


def test_a_task_that_needs_no_event_time_hears_none() -> None:
    feed = Feed(["0"])
    bench = Watched(branched(guarantee="at-least-once"), {"read": feed})
    bench.start()
    inbox = bench.task("aside").allocation.inbox
    feed.give("0", 10)
    bench.settle(["read", "work", "write"])
    items = [delivery.item for delivery in inbox.take(100)]
    controls = [item for item in items if isinstance(item, Control)]
    assert len(items) > len(controls), "segments do come"
    assert all(item.kind is ControlKind.FLUSH for item in controls)
    assert bench.watermark() == 10
