"""Inboxes: order, bounds, whole batches, and the wake from empty to not empty."""

import numpy as np
import pyarrow as pa
import pytest

from onyx.codec import columns as columns_codec
from onyx.codec import segments as codec
from onyx.errors import InvariantViolated
from onyx.flow.batch import Batch
from onyx.flow.columns.record_batch import Columns
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.transport.encoded import Encoded
from onyx.transport.interface import Bounds, Channel, Control, ControlKind, Load
from onyx.transport.local import LocalTransport

JOB, VERSION, TARGET = JobId("job"), AllocationVersion(7), PeerId("b")
HERE = GroupId("here")
BOUNDS = Bounds(10, 1 << 26)


class World:
    """One process with one inbox of ten segments, and its callbacks."""

    def __init__(self, short_circuit: bool = True, bounds: Bounds = BOUNDS) -> None:
        self.wakes = 0
        self.rooms = 0
        self.acks: list[list[int]] = []
        self.completions: list[tuple[list[int], bool]] = []
        self.held: list = []
        self.transport = LocalTransport(short_circuit)
        self.transport.on_room(self.count_room)
        self.transport.start(HERE, self)
        self.inbox = self.transport.open_inbox(JOB, VERSION, TARGET, bounds, self.count_wake)
        self.rooms = 0

    def count_wake(self) -> None:
        self.wakes += 1

    def count_room(self) -> None:
        self.rooms += 1

    def on_acks(self, job, version, acker, roots, values) -> None:
        self.acks.append(list(roots) + list(values))

    def on_completions(self, job, version, target, roots, retries_max) -> None:
        self.completions.append((list(roots), retries_max))

    def on_returns(self, job, version, target, trees, to_acker) -> None:
        self.returns.append(trees)

    def on_held(self, job, version, target, roots) -> None:
        self.held.append(list(roots))

    def hand_over(self, batch: Batch) -> Batch:
        assert self.transport.send(HERE, Channel(JOB, VERSION, PeerId("a"), TARGET), batch)
        (delivery,) = self.inbox.take(1)
        return delivery.item

    def send(self, numbers, source="a", version=VERSION) -> bool:
        item = numbers
        if not isinstance(numbers, Control):
            item = Batch([{"n": number} for number in numbers])
        return self.transport.send(HERE, Channel(JOB, version, PeerId(source), TARGET), item)

    def take_all(self) -> None:
        while self.inbox.take(1_000):
            pass

    def take(self, segments_max=100):
        return [
            delivery.item.kind.name
            if isinstance(delivery.item, Control)
            else [segment["n"] for segment in delivery.item.segments]
            for delivery in self.inbox.take(segments_max)
        ]


def test_batches_and_control_items_come_out_in_the_order_they_went_in():
    world = World()
    assert world.send([1, 2])
    assert world.send(Control(ControlKind.FLUSH))
    assert world.send([3])
    assert world.take() == [[1, 2], "FLUSH", [3]]
    assert world.take() == []


def test_take_gives_whole_batches_up_to_the_limit_and_always_at_least_one():
    world = World()
    for numbers in ([1, 2, 3], [4, 5], [6]):
        assert world.send(numbers)
    assert world.take(1) == [[1, 2, 3]]
    assert world.take(2) == [[4, 5]]
    assert world.inbox.waiting_segments() == 1


def test_a_full_inbox_refuses_and_tells_when_there_is_room():
    world = World()
    assert world.send(range(8))
    assert not world.send(range(3))
    assert world.send(range(2))
    assert world.inbox.waiting_segments() == 10
    assert world.rooms == 0
    world.take()
    assert world.rooms == 1
    world.take()
    assert world.rooms == 1
    assert world.send(range(3))


def test_nobody_starves_and_no_room_is_wasted_when_all_ask_in_the_same_order_each_time():
    """As tasks of one thread ask, all of which have more to send than there is room for."""
    world = World()
    sent = dict.fromkeys("abc", 0)
    for _ in range(12):
        for source in sent:
            while world.send(range(5), source):
                sent[source] += 1
        world.take()
    assert sum(sent.values()) == 24
    assert min(sent.values()) >= 4


def test_a_large_batch_that_was_refused_is_not_overtaken_by_small_ones():
    world = World()
    assert world.send(range(8), "small")
    assert not world.send(range(9), "large")
    world.take()
    assert world.send([1], "other"), "there is room for both"
    assert not world.send([1], "small"), "there is room for it alone"
    assert world.send(range(9), "large")


def test_a_sender_that_was_refused_and_went_elsewhere_holds_nobody_up_for_long():
    world = World()
    assert world.send(range(10), "a")
    assert not world.send(range(5), "gone")
    assert not world.send(range(5), "gone too")
    world.take()
    assert not world.send([1], "a")
    assert world.send([1], "a")


def test_an_empty_inbox_takes_a_batch_larger_than_itself():
    world = World()
    assert world.send(range(25))
    assert not world.send([1])
    assert world.take() == [list(range(25))]


def test_control_items_are_bounded_too():
    world = World()
    sent = sum(world.send(Control(ControlKind.FLUSH)) for _ in range(50))
    assert sent == 10


def test_wake_comes_only_when_an_empty_inbox_gets_something():
    world = World()
    world.send([1])
    world.send([2])
    assert world.wakes == 1
    world.take(1)
    world.send([3])
    assert world.wakes == 1
    world.take()
    world.send([4])
    assert world.wakes == 2


def test_another_version_finds_no_inbox_and_is_refused():
    world = World()
    assert not world.send([1], version=AllocationVersion(6))
    assert world.take() == []


def test_an_inbox_that_is_drained_gives_what_waited_and_refuses_what_comes():
    world = World()
    world.send([1])
    world.send([2])
    assert [len(delivery.item) for delivery in world.inbox.drain()] == [1, 1]
    assert not world.send([3])
    assert world.inbox.drain() == []
    assert world.transport.counters().dropped_version == 0


def test_a_closed_inbox_drops_what_waits_and_refuses_what_comes():
    world = World()
    world.send([1])
    world.inbox.close()
    assert not world.send([2])
    assert world.take() == []
    assert world.transport.counters().dropped_version == 1


def test_a_sender_hears_when_the_inbox_it_was_refused_by_opens():
    world = World()
    world.inbox.close()
    assert not world.send([1])
    world.rooms = 0
    world.inbox = world.transport.open_inbox(JOB, VERSION, TARGET, BOUNDS, world.count_wake)
    assert world.rooms == 1
    assert world.send([1])


def test_one_inbox_a_peer_and_version():
    world = World()
    with pytest.raises(InvariantViolated):
        world.transport.open_inbox(JOB, VERSION, TARGET, BOUNDS, world.count_wake)


LINEAGE = (np.array([5], np.uint64), np.array([6], np.uint64))
COLUMNS = Columns(pa.record_batch({"n": pa.array([1]), "at": pa.array([[None]])}))


@pytest.mark.parametrize("segments", [[{"n": 1}], COLUMNS], ids=["dicts", "columns"])
def test_short_circuit_hands_over_the_very_same_batch(segments):
    batch = Batch(segments, *LINEAGE)
    assert World().hand_over(batch) is batch


def test_without_short_circuit_a_copy_arrives_as_from_the_network():
    batch = Batch([{"n": (1, 2)}], *LINEAGE)
    item = World(short_circuit=False).hand_over(batch)
    assert item.segments == [{"n": (1, 2)}]
    assert item.segments[0] is not batch.segments[0]
    assert list(item.roots) == [5]
    assert list(item.ids) == [6]


def test_without_short_circuit_columns_arrive_as_from_the_network():
    item = World(short_circuit=False).hand_over(Batch(COLUMNS, *LINEAGE))
    assert item.segments is not COLUMNS
    assert item.segments.record_batch.equals(COLUMNS.record_batch)
    assert list(item.roots) == [5]
    assert list(item.ids) == [6]


@pytest.mark.parametrize("segments", [[], COLUMNS.slice(0, 0)], ids=["dicts", "columns"])
def test_an_empty_batch_is_sent_and_forgotten(segments):
    world = World()
    channel = Channel(JOB, VERSION, PeerId("a"), TARGET)
    assert world.transport.send(HERE, channel, Batch(segments))
    assert world.take() == []


def test_remote_batches_are_decoded_when_taken_and_their_credit_is_returned():
    world = World()
    returned: list[int] = []
    channel = Channel(JOB, VERSION, PeerId("far"), TARGET)
    payload = codec.encode([{"n": 1}, {"n": 2}])
    world.inbox.deliver(channel, Encoded(2, payload, b"", b""), returned.append)
    world.inbox.deliver(channel, Control(ControlKind.END), returned.append)
    assert world.inbox.waiting_segments() == 3
    assert returned == []
    assert world.take() == [[1, 2], "END"]
    assert returned == [2, 1, 0], "credit, and that nothing more waits"


def test_a_remote_batch_that_cannot_be_decoded_is_dropped_whole_and_counted():
    world = World()
    returned: list[int] = []
    channel = Channel(JOB, VERSION, PeerId("far"), TARGET)
    for broken in (
        Encoded(1, b"\xff", b"", b""),
        Encoded(2, codec.encode([{"n": 1}]), b"", b""),
        Encoded(1, codec.encode([{"n": 1}]), b"123", b""),
        Encoded(1, columns_codec.encode(COLUMNS), b"", b"", columnar=True),
    ):
        world.inbox.deliver(channel, broken, returned.append)
    world.inbox.deliver(channel, Encoded(1, codec.encode([{"n": 9}]), b"", b""), returned.append)
    assert world.take() == [[9]]
    assert returned == [1, 2, 1, 1, 1, 0]
    assert world.transport.counters().dropped_corrupt == 4


def test_a_task_is_hungry_when_it_finds_nothing_and_behind_when_two_of_its_batches_wait():
    world = World()
    here = Channel(JOB, VERSION, PeerId("a"), TARGET)
    assert world.transport.load(HERE, here) is Load.HUNGRY
    assert world.send([1, 2, 3, 4])
    assert world.send([5, 6])
    assert world.transport.load(HERE, here) is Load.BUSY, "it may take all at once"
    assert world.take(2) == [[1, 2, 3, 4]]
    assert world.transport.load(HERE, here) is Load.BUSY
    assert world.send([7, 8])
    assert world.transport.load(HERE, here) is Load.BEHIND
    assert world.transport.load(GroupId("x"), here) is Load.BEHIND
    assert world.rooms == 0
    assert world.take(2) == [[5, 6]]
    assert (world.rooms, world.transport.load(HERE, here)) == (1, Load.BUSY)
    assert (world.take(2), world.transport.load(HERE, here)) == ([[7, 8]], Load.BUSY)
    assert (world.take(2), world.transport.load(HERE, here)) == ([], Load.HUNGRY)


def test_who_sent_from_elsewhere_hears_when_the_task_has_nothing_left():
    world = World()
    returned: list[int] = []
    item = Encoded(1, codec.encode([{"n": 1}]), b"", b"")
    world.inbox.deliver(Channel(JOB, VERSION, PeerId("far"), TARGET), item, returned.append)
    assert world.send([2])
    assert (world.take(1), returned) == ([[1]], [1])
    assert (world.take(1), returned) == ([[2]], [1, 0])
    assert (world.take(1), returned) == ([], [1, 0]), "it was said"
    world.inbox.deliver(Channel(JOB, VERSION, PeerId("far"), TARGET), item, returned.append)
    assert world.send([3])
    assert (world.take(), returned) == ([[1], [3]], [1, 0, 1]), "its own process feeds it"
    assert (world.take(), returned) == ([], [1, 0, 1, 0])


def test_acks_completions_and_held_trees_reach_the_handlers_of_the_same_group_only():
    world = World()
    one, two = np.array([1], np.uint64), np.array([2], np.uint64)
    assert world.transport.send_acks(HERE, JOB, VERSION, TARGET, one, two)
    assert world.transport.send_completions(HERE, JOB, VERSION, TARGET, one, retries_max=3)
    assert world.transport.send_held(HERE, JOB, VERSION, TARGET, two)
    assert not world.transport.send_acks(GroupId("x"), JOB, VERSION, TARGET, one, two)
    assert not world.transport.send_held(GroupId("x"), JOB, VERSION, TARGET, two)
    assert world.held == [[2]]
    assert world.acks == [[1, 2]]
    assert world.completions == [([1], 3)]


@pytest.mark.parametrize("short_circuit", [True, False])
def test_who_is_held_back_takes_no_room_and_comes_in_order_when_it_is_let_go(short_circuit):
    world = World(short_circuit)
    assert world.send([1, 2, 3], "a")
    assert world.send([4], "b")
    world.inbox.hold(frozenset({PeerId("a")}))
    assert world.inbox.waiting_segments() == 1
    assert not world.send([5], "a")
    assert world.send(range(10, 19), "b")
    assert world.take() == [[4], list(range(10, 19))]
    assert world.take() == []
    assert len(world.inbox.waiting_roots()) == 0
    world.inbox.hold(frozenset())
    assert world.rooms > 0
    assert world.send([5], "a")
    assert world.take() == [[1, 2, 3], [5]]


def test_what_is_held_back_is_drained_with_the_rest():
    world = World()
    assert world.send([1], "a")
    world.inbox.hold(frozenset({PeerId("a")}))
    assert world.send([2], "b")
    assert [each.item.segments[0]["n"] for each in world.inbox.drain()] == [1, 2]


@pytest.mark.parametrize("form", ["dicts", "columns", "encoded"])
def test_of_large_segments_fewer_wait(form: str) -> None:
    world = World(bounds=Bounds(1_000, 100_000))
    channel = Channel(JOB, VERSION, PeerId("a"), TARGET)
    text = "x" * 20_000
    if form == "encoded":
        world.inbox.join()
        assert world.inbox.window() == 1_000
        payload = codec.encode([{"text": text}])
        world.inbox.deliver(channel, Encoded(1, payload, b"", b""), lambda taken: None)
        assert world.inbox.window() == 4, "the sender is granted as many, while these come"
        return
    columns = Columns(pa.record_batch({"text": [text]}))
    batch = Batch(columns if form == "columns" else [{"text": text}])
    assert sum(world.transport.send(HERE, channel, batch) for _ in range(20)) == 4
    for number in range(3_000):  # small ones
        if not world.send([number]):
            world.take_all()
    world.take_all()
    assert sum(world.send([number]) for number in range(2_000)) > 200


def test_a_batch_of_more_bytes_than_an_inbox_may_hold_goes_into_an_empty_one() -> None:
    world = World(bounds=Bounds(10, 1))
    assert world.send([1, 2, 3])
    assert not world.send([4])
    assert world.take() == [[1, 2, 3]]
    assert world.send([4])
