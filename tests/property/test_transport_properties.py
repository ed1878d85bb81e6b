"""One link between two groups, with streams that break anywhere: each item arrives once, in order.

No thread, no socket: the test moves the frames itself, loses them, and makes new streams.
"""

import contextlib
import random
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.clocks import ManualClock

from onyx.errors import SegmentError
from onyx.flow.batch import Batch, as_dicts
from onyx.flow.columns.record_batch import Columns
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.settings import TransportSettings
from onyx.transport.encoded import Encoded
from onyx.transport.frames import compression, decoder, encoder
from onyx.transport.frames.packets import (
    FOLDED_FROM_BYTES,
    Acks,
    FrameError,
    Item,
    Schema,
    checksum,
)
from onyx.transport.hello import Ends, Stream, Surroundings
from onyx.transport.inbox import Inboxes
from onyx.transport.interface import Bounds, Channel, Control, ControlKind
from onyx.transport.link import Link
from onyx.transport.pieces import encoded_pieces

JOB, VERSION, TARGET = JobId("job"), AllocationVersion(1), PeerId("q")
SETTINGS = TransportSettings(frame_bytes_target=200, link_bytes_max=2_000)
CODECS = {"a": "lz4", "b": "zstd"}
WINDOW = 20
PACKET_BYTES = 9_000
"""Of the largest packets that networks carry."""
SEGMENTS = {
    "dicts": lambda numbers: [{"n": number} for number in numbers],
    "columns": lambda numbers: Columns(pa.record_batch({"n": pa.array(numbers, pa.int64())})),
    "other columns": lambda numbers: Columns(
        pa.record_batch({"text": list(map(str, numbers)), "n": pa.array(numbers, pa.float64())})
    ),
}
"""What batches are made of: a channel carries any of these, one after the other."""


@pytest.fixture(autouse=True, scope="module")
def small_frames_are_compressed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "COMPRESSED_FROM_BYTES", 100)
        yield


class Group:
    """One end: a link, its inboxes, and the stream that it believes in."""

    def __init__(self, here: str, there: str, clock: ManualClock) -> None:
        self.inboxes = Inboxes()
        self.acks: list[int] = []
        settings = replace(SETTINGS, compression=CODECS[here])
        around = Surroundings(
            settings, self.inboxes, self, lambda: None, clock, random.Random(here), ord(here)
        )
        self.link = Link(Ends("tenancy", GroupId(here), GroupId(there)), around)
        self.inboxes.listen(self.link.inbox_opened, self.link.inbox_closed)
        self.stream = Stream(lambda: None)
        self.on_the_way: list[bytes] = []
        self.arrived: list[bytes] = []

    def on_acks(self, job, version, acker, roots, values) -> None:
        self.acks += roots.tolist()

    def on_completions(self, *args) -> None: ...

    def on_returns(self, *args) -> None: ...

    def on_lookup(self, *args) -> None: ...

    def on_held(self, *args) -> None: ...


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.near = Group("a", "b", self.clock)
        self.far = Group("b", "a", self.clock)
        self.inbox = self.far.inboxes.open(
            (JOB, VERSION, TARGET), Bounds(WINDOW, 1 << 26), lambda: None, lambda: None
        )
        self.sent: dict[str, list] = {"p1": [], "p2": []}
        self.taken: dict[str, list] = {"p1": [], "p2": []}
        self.acks_sent: list[int] = []
        self.connect()

    def connect(self) -> None:
        """A new stream; what was on the way on the old one is lost."""
        for group in (self.near, self.far):
            group.link.detach(group.stream)
            group.stream = Stream(lambda: None)
            group.on_the_way.clear()
        near, far = self.near, self.far
        while True:
            greeting = decoder.decode(near.link.hello(), 10_000)
            far.link.attach(far.stream, greeting)
            answer = decoder.decode(far.link.hello(), 10_000)
            if near.link.attach(near.stream, answer):
                return

    def write(self, group: Group) -> None:
        self.clock.advance(SETTINGS.heartbeat_interval_s)
        group.on_the_way.append(next(group.link.outgoing(group.stream)))

    def deliver(self, source: Group, sink: Group) -> None:
        if source.on_the_way:
            source.arrived.append(source.on_the_way.pop(0))
            sink.link.receive(sink.stream, source.arrived[-1])

    def repeat(self, source: Group, sink: Group, number: int) -> None:
        """Some frame that has arrived comes once more."""
        if source.arrived:
            frame = source.arrived[number % len(source.arrived)]
            sink.link.receive(sink.stream, frame)

    def send(self, source: str, size: int, kind: str = "dicts", more: bool = False) -> None:
        channel = Channel(JOB, VERSION, PeerId(source), TARGET)
        log = self.sent[source]
        if size == 0:
            if self.near.link.send(channel, Control(ControlKind.FLUSH)):
                log.append("FLUSH")
            return
        numbers = list(range(len(log), len(log) + size))
        if self.near.link.send(channel, Batch(SEGMENTS[kind](numbers)), more):
            log += numbers

    def ack(self) -> None:
        number = len(self.acks_sent) + 1
        column = np.array([number], np.uint64)
        acks = Acks(JOB, VERSION, TARGET, column, column)
        if self.near.link.send_packets([encoder.acks_packet(acks)]):
            self.acks_sent.append(number)

    def take(self, segments_max: int) -> None:
        assert self.inbox.waiting_segments() <= 4 * WINDOW
        for delivery in self.inbox.take(segments_max):
            log = self.taken[delivery.channel.source]
            if isinstance(delivery.item, Control):
                log.append("FLUSH")
            else:
                log += [segment["n"] for segment in as_dicts(delivery.item.segments)]

    def settle(self) -> None:
        """The network is well again: everything arrives."""
        self.connect()
        self.exchange(40)

    def exchange(self, rounds: int) -> None:
        for _ in range(rounds):
            for source, sink in ((self.near, self.far), (self.far, self.near)):
                self.write(source)
                self.deliver(source, sink)
            self.take(100)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"),
            st.sampled_from(["p1", "p2"]),
            st.integers(0, 30),
            st.sampled_from(list(SEGMENTS)),
            st.booleans(),
        ),
        st.tuples(st.just("ack")),
        st.tuples(st.just("write"), st.sampled_from(["near", "far"])),
        st.tuples(st.just("deliver"), st.sampled_from(["near", "far"])),
        st.tuples(st.just("repeat"), st.sampled_from(["near", "far"]), st.integers(0, 100)),
        st.tuples(st.just("take"), st.integers(1, 40)),
        st.tuples(st.just("connect")),
    ),
    min_size=15,
    max_size=80,
)


@given(STEPS)
def test_every_item_arrives_once_and_in_order_whatever_breaks(steps):
    world = World()
    for name, *arguments in steps:
        if name in ("write", "deliver", "repeat"):
            source = getattr(world, arguments[0])
            sink = world.far if source is world.near else world.near
            arguments = [source] if name == "write" else [source, sink, *arguments[1:]]
        getattr(world, name)(*arguments)
        for source in world.sent:
            assert world.taken[source] == world.sent[source][: len(world.taken[source])]
    world.settle()
    assert world.taken == world.sent
    assert world.far.acks == world.acks_sent
    for source in world.sent:
        world.send(source, 1)  # Opens the channel if nothing has yet.
        world.exchange(2)
        for _ in range(WINDOW):
            before = len(world.sent[source])
            world.send(source, 3)
            world.exchange(2)
            assert len(world.sent[source]) == before + 3, "no credit was lost on the way"
    assert world.taken == world.sent


INT64 = st.integers(-(2**63), 2**63 - 1)
U64 = st.integers(0, 2**64 - 1)
FRONTIERS = st.lists(st.tuples(st.integers(0, 2**32 - 1), U64), max_size=20).map(tuple)
CONTROLS = st.one_of(
    st.builds(Control, st.just(ControlKind.FLUSH)),
    st.builds(Control, st.just(ControlKind.END), U64, U64),
    st.builds(Control, st.just(ControlKind.WATERMARK), time_ms=st.none() | INT64),
    st.builds(
        Control,
        st.just(ControlKind.EPOCH),
        epoch=st.integers(1, 2**64 - 1),
        frontiers=FRONTIERS,
    ),
)


@given(st.lists(CONTROLS, min_size=1, max_size=5))
def test_any_control_items_survive_in_order(controls):
    packets = [encoder.item_packet(1, number, item) for number, item in enumerate(controls, 1)]
    frame = decoder.decode(encoder.frame(1, 0, packets), 10_000)
    assert [packet.item for packet in frame.packets] == controls


@given(CONTROLS, st.data())
def test_a_control_item_changed_on_the_way_is_a_frame_or_a_frame_error(control, data):
    with contextlib.suppress(FrameError):
        decoder.decode(changed([encoder.item_packet(1, 1, control)], data), 10_000)


def changed(packets, data) -> bytes:
    """A frame with some other bytes. The checksum is made right again, so that what is inside has
    to be looked at."""
    frame = bytearray(encoder.frame(1, 0, packets)[:-5])
    for place in data.draw(st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=4)):
        frame[place] = data.draw(st.integers(0, 255))
    return bytes(frame + b"\x7d" + zlib.crc32(frame).to_bytes(4, "little"))


@given(st.sampled_from(list(SEGMENTS)), st.integers(1, 20), st.data())
def test_a_batch_changed_on_the_way_is_a_batch_or_an_error(kind, size, data):
    column = np.arange(size, dtype=np.uint64)
    (piece,) = encoded_pieces(Batch(SEGMENTS[kind](range(size)), column, column), 10_000)
    packets = [encoder.item_packet(1, 1, piece)]
    if piece.schema is not None:
        packets.insert(0, encoder.schema_packet(1, piece.schema))
    with contextlib.suppress(FrameError, SegmentError):
        schema = None
        for packet in decoder.decode(changed(packets, data), 10_000).packets:
            if isinstance(packet, Schema):
                schema = packet.schema
            elif isinstance(packet, Item) and isinstance(packet.item, Encoded):
                batch = packet.item.of_schema(schema).decode()
                assert len(as_dicts(batch.segments)) == len(batch.roots) == len(batch.ids)


@given(
    st.integers(FOLDED_FROM_BYTES, 3 * FOLDED_FROM_BYTES),
    st.integers(0, FOLDED_FROM_BYTES - PACKET_BYTES),
    st.binary(min_size=1, max_size=PACKET_BYTES),
)
def test_damage_within_one_packet_of_a_large_frame_is_noticed(size, place, damage):
    body = bytearray(random.Random(size).randbytes(size))
    right = checksum(body)
    if body[place : place + len(damage)] != damage:
        body[place : place + len(damage)] = damage
        assert checksum(body) != right


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_a_frame_or_a_frame_error(data, with_checksum):
    if with_checksum:
        data += b"\x7d" + zlib.crc32(data).to_bytes(4, "little")
    with contextlib.suppress(FrameError):
        decoder.decode(data, 10_000)
