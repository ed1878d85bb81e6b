"""A drained partition, whoever owns it and whoever dies: it ends, soon, and without a hole."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.clocks import ManualClock
from tests.support.examples import examples
from tests.support.log.memory_log import MemoryLog

from onyx.base.runs import array_of
from onyx.flow.batch import U64
from onyx.ids import GroupId, JobId
from onyx.ledger.lineage import positions_of
from onyx.model.parsing.job import parse_mapping
from onyx.plugins import protocol
from onyx.plugins.protocol import Cursor
from onyx.task.batching import BatchSizing
from onyx.task.source.frontier import FrontierStore
from onyx.task.source.partition import DRAIN_IDLE_S, RESERVE_POSITIONS_MIN
from onyx.task.source.source import Source

JOB = JobId("j")
BATCH = 7


class Endless(protocol.Input):
    """A source that gives all up to `available`, and more later."""

    cooperative = True

    def __init__(self) -> None:
        self.available = 0

    def partitions(self) -> list[str]:
        return ["p"]

    def open(self, partition: str, cursor: Cursor) -> Endless.Reader:
        return Endless.Reader(self, cursor.position)

    def close(self) -> None: ...

    class Reader(protocol.Reader):
        def __init__(self, source: Endless, position: int) -> None:
            self.source, self.position = source, position

        def read(self, segments_max: int) -> list[dict[str, Any]]:
            last = min(self.position + segments_max, self.source.available)
            first, self.position = self.position, max(self.position, last)
            return [{"n": n} for n in range(first, last)]

        def exhausted(self) -> bool:
            return False

        def cursor(self, position: int) -> Cursor:
            return Cursor(position)

        def close(self) -> None: ...


class World:
    """The log in which frontiers are stored, and one owner of the partition at a time."""

    def __init__(self) -> None:
        self.memory = MemoryLog()
        self.clock = ManualClock()
        self.endless = Endless()
        self.slow: list[Callable[[], None]] = []
        self.sent: set[int] = set()
        self.done: set[int] = set()
        self.in_flight: list[U64] = []
        self.draining = False
        self.owners = 0
        self.take_over()

    def take_over(self) -> None:
        """The next owner opens the partition where the store says."""
        self.owners += 1
        self.log = self.memory.group(GroupId(f"g{self.owners}"))
        self.log.register_pulse()
        self.in_flight = []
        self.source = Source(self.endless, ENTRY, BatchSizing(ENTRY), self.clock)
        store = FrontierStore(self, JOB, 0)  # type: ignore[arg-type]
        self.source.open(0, "p", store, store.load())
        self.source.replay_pending()

    def background(self, work: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()

        def finish() -> None:
            future.set_result(work())  # type: ignore[func-returns-value]

        self.slow.append(finish)
        return future

    def finish_saves(self) -> None:
        slow, self.slow = self.slow, []
        for finish in slow:
            finish()

    def read(self) -> bool:
        if self.draining:
            self.source.drain()
        batches = self.source.read()
        if not batches:
            return False
        (batch,) = batches
        assert batch.roots is not None
        found = [segment["n"] for segment in batch.segments]
        assert found == positions_of(array_of(batch.roots)).tolist()
        self.sent.update(found)
        self.in_flight.append(batch.roots)
        return True

    def complete(self, index: int) -> None:
        if self.in_flight:
            roots = self.in_flight.pop(index % len(self.in_flight))
            self.done.update(positions_of(array_of(roots)).tolist())
            self.source.complete(roots)

    def crash(self, saved: bool) -> None:
        """The owner dies; a save that was on its way may still arrive."""
        if saved:
            self.finish_saves()
        self.slow.clear()
        self.take_over()

    def hand_over(self) -> None:
        while not self.source.give_away([0]):
            self.finish_saves()
        self.take_over()

    def end(self) -> None:
        """No more faults: drain to the end."""
        self.draining = True
        for _ in range(2_000):
            self.finish_saves()
            if self.read():
                continue
            self.complete(0)
            if self.source.finished_reading() and self.source.all_complete():
                return
            self.clock.advance(DRAIN_IDLE_S / 2)
        raise AssertionError("the partition does not end")


ENTRY = parse_mapping(
    {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "j"},
        "spec": {
            "workflow": [["in", "out"]],
            "catalog": [
                {
                    "name": "in",
                    "type": "input",
                    "plugin": "sequence",
                    "batchSize": BATCH,
                    "maxPending": 50,
                    "options": {"segments": []},
                },
                {"name": "out", "type": "output", "plugin": "blackhole", "batchSize": BATCH},
            ],
        },
    }
).entry("in")

steps = st.one_of(
    st.tuples(st.just("read"), st.integers(1, 30)),
    st.tuples(st.just("arrive"), st.integers(1, 400)),
    st.tuples(st.just("complete"), st.integers(0, 50)),
    st.tuples(st.just("save"), st.just(0)),
    st.tuples(st.just("checkpoint"), st.just(0)),
    st.tuples(st.just("crash"), st.integers(0, 1)),
    st.tuples(st.just("hand over"), st.just(0)),
    st.tuples(st.just("drain"), st.just(0)),
)


def play(world: World, step: tuple[str, int]) -> None:
    match step:
        case ("read", count):
            for _ in range(count):
                world.read()
                if count % 2:
                    world.finish_saves()
        case ("arrive", count):
            world.endless.available += count
        case ("complete", index):
            world.complete(index)
        case ("save", _):
            world.finish_saves()
        case ("checkpoint", _):
            world.source.checkpoint(interval_s=0.0)
        case ("crash", saved):
            world.crash(bool(saved))
        case ("hand over", _):
            world.hand_over()
        case ("drain", _):
            world.draining = True


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(steps, max_size=60))
def test_everything_that_was_ever_sent_is_completed_in_the_end(plan: list[tuple[str, int]]) -> None:
    world = World()
    for step in plan:
        play(world, step)
    world.end()
    assert world.sent == world.done == set(range(len(world.sent)))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(steps.filter(lambda step: step[0] != "crash"), max_size=60))
def test_without_a_crash_nothing_new_is_read(plan: list[tuple[str, int]]) -> None:
    world = World()
    before: int | None = None
    for step in plan:
        play(world, step)
        if world.draining and before is None:
            before = len(world.sent)
    if before is None:
        before = len(world.sent)
    world.endless.available += 1_000
    world.end()
    assert len(world.sent) == before


def test_a_crash_lets_a_drained_partition_read_no_more_than_was_reserved() -> None:
    world = World()
    world.endless.available = 1_000_000
    for _ in range(5):
        world.read()
        world.finish_saves()
    world.crash(saved=True)
    world.end()
    assert len(world.sent) <= BATCH * 5 + RESERVE_POSITIONS_MIN
