"""Sources without a journal: what is in flight, when it is acked, and what another owner gets."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.clocks import ManualClock
from tests.support.examples import examples
from tests.support.jobs.memory_queue import MemoryQueue, MemorySource
from tests.support.jobs.plugin_context import plugin_context

from onyx.flow.batch import as_dicts
from onyx.ledger.outcomes import FailedSegment, Outcomes
from onyx.ledger.returns import OUTCOMES, Parts
from onyx.plugins.protocol import AckedReader, Cursor
from onyx.plugins.sources.messages import SourceMessages, messages_of
from onyx.plugins.sources.native import RETRY_S, InFlight, NativeInput
from onyx.plugins.sources.protocol import Portion


def positions(*numbers: int) -> np.ndarray:
    return np.array(sorted(numbers), dtype=np.uint64)


def portion(ids: list[str], counts: list[int], handles: list[Any] | None = None) -> SourceMessages:
    segments = [
        {"id": id, "n": n} for id, count in zip(ids, counts, strict=True) for n in range(count)
    ]
    return messages_of(Portion(segments, handles or ids, ids, counts), examine=False)


@settings(max_examples=examples(200))
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
def test_a_message_is_done_once_when_the_last_of_its_segments_is(
    portions: list[list[int]], random: Any
) -> None:
    held, want, done, start = InFlight(7), dict[str, set[int]](), list[str](), 7
    for number, counts in enumerate(portions):
        ids = [f"{number}-{index}" for index in range(len(counts))]
        for id, count in zip(ids, counts, strict=True):
            want[id] = set(range(start, start + count))
            start += count
        done += held.add(portion(ids, counts))[2]
    assert held.end == start
    left, frontier = list(range(7, start)), 7
    while frontier < start:
        if left and random.random() < 0.7:
            some = random.sample(left, random.randint(1, len(left)))
            left = [each for each in left if each not in some]
            done += held.complete(positions(*some)).processed
        else:  # what was complete before is passed; a window may also say so of all at once
            frontier = min(left, default=start) if random.random() < 0.8 else start
            left = [each for each in left if each >= frontier]
            done += held.passed(frontier).processed
        assert sorted(done) == sorted(id for id, its in want.items() if not its & set(left))
    assert held.incomplete() == []


def test_a_message_that_comes_again_while_it_is_in_flight_has_a_new_handle() -> None:
    held = InFlight(0)
    held.add(portion(["a", "b"], [1, 1], [1, 2]))
    first, again, _ = held.add(portion(["b", "c"], [1, 1], [3, 4]))
    assert (first, again, held.end) == (2, 1, 3)
    assert held.complete(positions(0, 1)).processed == [1, 3]
    _, again, _ = held.add(portion(["a"], [1], [5]))
    assert again == 0, "it is processed: the source has not heard of it, and it counts as new"


class World:
    """An input over a queue."""

    def __init__(self, numbers: list[int]) -> None:
        self.queue, self.clock = MemoryQueue(numbers), ManualClock()

    def owner(
        self, position: int = 0, opener: Any = None, returns_failures: bool = False
    ) -> tuple[NativeInput, Any]:
        context = plugin_context({}, clock=self.clock)
        opener = opener or self.queue.open
        made = NativeInput(context, 1, opener, returns_failures=returns_failures)
        (name,) = made.partitions()
        return made, made.open(name, Cursor(position))


def test_the_task_says_what_is_processed_when_it_is() -> None:
    """And not when the frontier is saved next, which is seconds later."""
    assert isinstance(World([1]).owner()[1], AckedReader)


def test_what_is_processed_is_acked_and_nothing_before() -> None:
    world = World([1, 2, 3])
    _, reader = world.owner()
    assert reader.read(2) == [{"n": 1}, {"n": 2}]
    assert not world.queue.acked
    reader.acked(positions(1))
    assert world.queue.acked == [2]
    assert reader.cursor(2) == Cursor(2, {})
    assert world.queue.acked == [2, 1]


def test_what_is_in_flight_is_read_again_from_memory() -> None:
    world = World(list(range(10)))
    made, reader = world.owner()
    while len(world.queue.pending) < 9:
        reader.read(1)
    reader.cursor(2)
    again = made.open(*made.partitions(), Cursor(2))
    assert again.read(4) == [{"n": n} for n in range(2, 6)]
    again.close()
    assert reader.read(3) != []


def test_another_owner_begins_at_the_frontier_with_what_was_not_acked() -> None:
    world = World(list(range(5)))
    made, reader = world.owner()
    assert len(reader.read(5)) == 5
    reader.acked(positions(0, 2, 3))
    cursor = reader.cursor(1)
    made.close()
    assert world.queue.failed == [1, 4]
    _, other = world.owner(cursor.position)
    assert other.read(5) == [{"n": 1}, {"n": 4}]
    assert other.cursor(3).position == 3
    assert sorted(world.queue.acked) == [0, 1, 2, 3, 4]


def test_a_source_that_is_away_is_shown_and_tried_again() -> None:
    world = World([1])
    _, reader = world.owner()
    world.queue.down = lambda what: True
    assert reader.read(1) == []
    assert "does not answer" in reader.obstacle()
    world.queue.down = lambda what: False
    assert reader.read(1) == [], "not at once"
    world.clock.advance(RETRY_S)
    assert reader.read(1) == [{"n": 1}]
    assert not reader.obstacle()


def test_an_ack_that_did_not_arrive_is_sent_again() -> None:
    world = World([1])
    _, reader = world.owner()
    reader.read(1)
    world.queue.down = lambda what: what == "ack"
    reader.acked(positions(0))
    world.queue.down = lambda what: False
    world.clock.advance(RETRY_S)
    reader.read(1)
    assert world.queue.acked == [1]


def test_a_partition_that_drains_takes_nothing_more() -> None:
    world = World([1, 2, 3, 4, 5])
    _, reader = world.owner()
    reader.read(1)
    taken = reader.drain()
    found = reader.read(10)
    assert taken == 1 + len(found)
    assert reader.read(10) == []
    assert len(as_dicts(found)) == 2
    assert world.queue.waiting == [4, 5]


@pytest.mark.parametrize("ends", [True, False])
def test_an_end_is_one_when_all_was_read(ends: bool) -> None:
    world = World([1])
    world.queue.ends = ends
    _, reader = world.owner()
    assert not reader.exhausted()
    reader.read(1)
    assert reader.exhausted() is ends


LEASE_S = 3_000_000.0
"""So long that the thread that keeps it does nothing in a test."""


def outcome(task: str, error: str) -> Parts:
    return {OUTCOMES: Outcomes(failed=1, failures=(FailedSegment(task, error),)).part()}


def test_what_failed_for_good_is_said_when_all_of_its_trees_are_complete() -> None:
    world = World([1, 2])
    world.queue.parts = 2
    _, reader = world.owner(returns_failures=True)
    assert len(reader.read(4)) == 4
    reader.returned(1, outcome("price", "KeyError: 'who'"))
    reader.acked(positions(1, 2, 3))
    assert (world.queue.acked, world.queue.terminated) == ([2], {})
    reader.acked(positions(0))
    assert (world.queue.acked, world.queue.terminated) == ([2], {1: "price: KeyError: 'who'"})


def test_the_frontier_tells_what_failed_too() -> None:
    world = World([1, 2])
    _, reader = world.owner(returns_failures=True)
    reader.read(2)
    reader.returned(0, outcome("price", "no"))
    reader.cursor(2)
    assert (world.queue.acked, world.queue.terminated) == ([2], {1: "price: no"})


def test_what_is_given_back_is_over_and_comes_again_as_new() -> None:
    world = World([1, 2])
    _, reader = world.owner(returns_failures=True)
    reader.read(2)
    reader.given_up(positions(0))
    assert (world.queue.failed, world.queue.rests) == ([1], [0.1])
    reader.acked(positions(0, 1))
    assert world.queue.acked == [2], "a tree that goes on says nothing"
    assert reader.read(1) == [{"n": 1}]
    reader.given_up(positions(2))
    assert world.queue.rests == [0.1, 0.2]


def test_a_source_that_hears_of_no_failures_takes_what_was_given_up_for_processed() -> None:
    world = World([1])
    _, reader = world.owner()
    reader.read(1)
    reader.returned(0, outcome("price", "no"))
    reader.given_up(positions(0))
    assert (world.queue.acked, world.queue.failed, world.queue.terminated) == ([1], [], {})


def test_a_source_has_not_ended_before_it_has_heard_of_what_failed() -> None:
    world = World([1])
    world.queue.ends = True
    _, reader = world.owner(returns_failures=True)
    reader.read(1)
    world.queue.down = lambda what: what == "fail"
    reader.given_up(positions(0))
    assert not reader.exhausted()
    world.queue.down = lambda what: False
    world.clock.advance(RETRY_S)
    assert reader.read(1) == [{"n": 1}], "it was told, and gave it again"
    reader.acked(positions(1))
    assert reader.exhausted()


def test_a_drained_source_hears_what_it_could_not_hear_at_once() -> None:
    world = World([1])
    _, reader = world.owner()
    reader.read(1)
    reader.drain()
    world.queue.down = lambda what: what == "ack"
    reader.acked(positions(0))
    world.queue.down = lambda what: False
    world.clock.advance(RETRY_S)
    assert (reader.read(1), world.queue.acked) == ([], [1])


def test_a_message_that_is_no_segment_has_failed() -> None:
    class Odd(MemorySource):
        def receive(self, wait_s: float) -> Portion | None:
            found = super().receive(wait_s)
            return found and msgspec.structs.replace(
                found, segments=[{"n": 2}], counts=[0, 1], refused={0: "no number"}
            )

    world = World([1, 2])
    _, reader = world.owner(returns_failures=True, opener=lambda *_: Odd(world.queue))
    assert reader.read(2) == [{"n": 2}]
    assert world.queue.terminated == {1: "no number"}
    reader.acked(positions(0))
    assert world.queue.acked == [2]


def test_within_each_lease_a_source_hears_what_is_worked_on() -> None:
    world = World([1, 2, 3])
    world.queue.lease_s = LEASE_S
    made, reader = world.owner()
    reader.read(3)
    partition = reader._partition
    partition.keep(LEASE_S)
    assert world.queue.kept == [], "they were given a moment ago"
    reader.acked(positions(1))
    world.clock.advance(LEASE_S / 2)
    partition.keep(LEASE_S)
    partition.keep(LEASE_S)
    assert world.queue.kept == [[1, 3]]
    world.clock.advance(LEASE_S / 2)
    world.queue.down = lambda what: what == "working"
    partition.keep(LEASE_S)
    world.queue.down = lambda what: False
    partition.keep(LEASE_S)
    assert world.queue.kept == [[1, 3], [1, 3]]
    made.close()
    partition.keep(LEASE_S)
    assert len(world.queue.kept) == 2


def test_what_a_source_raises_when_it_hears_what_is_worked_on_ends_the_job() -> None:
    class Broken(MemorySource):
        def working(self, handles: Any) -> None:
            raise ValueError("a bug")

    world = World([1, 2, 3, 4])
    _, reader = world.owner(opener=lambda *_: Broken(world.queue))
    reader.read(3)
    world.clock.advance(LEASE_S)
    reader._partition.keep(LEASE_S)
    with pytest.raises(ValueError, match="a bug"):
        reader.read(1)
