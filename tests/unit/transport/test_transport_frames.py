"""Frames: every packet survives the journey; a frame that is wrong in any way is a FrameError."""

import zlib

import numpy as np
import pyarrow as pa
import pytest

from onyx.base.structs import fields
from onyx.codec import columns as columns_codec
from onyx.codec import segments as codec
from onyx.flow.columns.record_batch import Columns
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.transport.encoded import Encoded, through_bytes
from onyx.transport.frames import decoder, encoder
from onyx.transport.frames.packets import (
    Acks,
    Close,
    Completions,
    Credit,
    Frame,
    FrameError,
    Held,
    Hello,
    Item,
    Open,
    Schema,
)
from onyx.transport.interface import (
    FRONTIERS_MAX,
    Channel,
    Control,
    ControlKind,
    LookUp,
    LookUpAnswer,
    Partial,
)
from onyx.wire.v1 import streams_pb2 as pb

MAX = 4_000_000
CHANNEL = Channel(JobId("job"), AllocationVersion(1), PeerId("a"), PeerId("b"))
ROOTS = np.array([1, 2**64 - 1], np.uint64)
BATCH = Encoded(2, codec.encode([{}, {}]), codec.encode_column(ROOTS), codec.encode_column(ROOTS))

SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string())])
ROWS = Columns(pa.record_batch([[1, 2], ["a", None]], schema=SCHEMA))
COLUMNS = Encoded(2, columns_codec.encode(ROWS), BATCH.roots, BATCH.ids, columnar=True)
STATES = Encoded(2, b"\x90", BATCH.roots, BATCH.ids, folded=True)


def sealed(frame: pb.Frame) -> bytes:
    """A frame with a right checksum, whatever it holds."""
    body = frame.SerializeToString()
    return body + b"\x7d" + zlib.crc32(body).to_bytes(4, "little")


def with_packet(**kind) -> bytes:
    return sealed(pb.Frame(first=1, packets=[pb.Packet(**kind)]))


def test_packets_survive_in_order():
    packets = [
        encoder.open_packet(3, CHANNEL),
        encoder.item_packet(3, 1, BATCH),
        encoder.schema_packet(3, SCHEMA),
        encoder.item_packet(3, 2, COLUMNS),
        encoder.item_packet(3, 3, STATES),
        encoder.item_packet(3, 4, Control(ControlKind.END, 5, 2**64 - 1)),
        encoder.credit_packet(Credit(4, 100, 20_000)),
        encoder.close_packet(3),
    ]
    assert decoder.decode(encoder.frame(17, 42, packets), MAX) == Frame(
        17,
        42,
        (
            Open(3, CHANNEL),
            Item(3, 1, BATCH),
            Schema(3, SCHEMA),
            Item(3, 2, COLUMNS),
            Item(3, 3, STATES),
            Item(3, 4, Control(ControlKind.END, 5, 2**64 - 1)),
            Credit(4, 100, 20_000),
            Close(3),
        ),
    )


CONTROLS = [
    Control(ControlKind.FLUSH),
    Control(ControlKind.END, 5, 2**64 - 1),
    Control(ControlKind.WATERMARK, time_ms=None),
    Control(ControlKind.WATERMARK, time_ms=0),
    Control(ControlKind.WATERMARK, time_ms=7, lull=True),
    Control(ControlKind.WATERMARK, time_ms=-(2**63)),
    Control(ControlKind.WATERMARK, time_ms=2**63 - 1),
    Control(ControlKind.EPOCH, epoch=1),
    Control(
        ControlKind.EPOCH,
        epoch=2**64 - 1,
        frontiers=tuple((n, 2**40 - n) for n in range(FRONTIERS_MAX)),
    ),
]


@pytest.mark.parametrize("control", CONTROLS, ids=lambda each: each.kind.name)
def test_control_items_survive(control):
    data = encoder.frame(1, 0, [encoder.item_packet(3, 1, control)])
    assert decoder.decode(data, MAX).packets == (Item(3, 1, control),)


def test_the_largest_control_item_is_small():
    assert len(encoder.item_packet(2**32 - 1, 2**64 - 1, CONTROLS[-1])) < 12_000


def test_acks_completions_and_held_trees_survive():
    acks = Acks(JobId("job"), AllocationVersion(1), PeerId("a"), ROOTS, ROOTS + np.uint64(2))
    done = Completions(JobId("job"), AllocationVersion(1), PeerId("a"), ROOTS, 3)
    held = Held(JobId("job"), AllocationVersion(1), PeerId("a"), ROOTS)
    packets = [
        encoder.acks_packet(acks),
        encoder.completions_packet(done),
        encoder.held_packet(held),
    ]
    frame = decoder.decode(encoder.frame(1, 0, packets), MAX)
    for sent, come in zip((acks, done, held), frame.packets, strict=True):
        for field in fields(type(sent)):
            assert np.array_equal(getattr(sent, field.name), getattr(come, field.name))


def test_questions_about_states_and_their_answers_survive():
    job, version = JobId("job"), AllocationVersion(1)
    asked = LookUp(job, version, PeerId("a"), GroupId("g"), PeerId("b"), 7, "t.s", b"keys", True)
    found = LookUpAnswer(job, version, PeerId("b"), 7, b"states")
    refused = LookUpAnswer(job, version, PeerId("b"), 8, b"", "too large")
    packets = [encoder.lookup_packet(each) for each in (asked, found, refused)]
    frame = decoder.decode(encoder.frame(1, 0, packets), MAX)
    assert frame.packets == (asked, found, refused)


def test_a_hello_survives():
    hello = Hello("tenancy", GroupId("a"), GroupId("b"), 2**63, 1, 2, 3, 4)
    assert decoder.decode(encoder.hello_frame(hello), MAX) == hello


def test_a_frame_without_packets_is_a_heartbeat():
    assert decoder.decode(encoder.frame(1, 9, []), MAX) == Frame(1, 9, ())


@pytest.mark.parametrize("item", [BATCH, COLUMNS], ids=["dicts", "columns"])
def test_every_changed_bit_is_noticed(item):
    data = encoder.frame(1, 0, [encoder.item_packet(3, 1, item)])
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            with pytest.raises(FrameError):
                decoder.decode(bytes(damaged), MAX)


def test_every_truncation_is_noticed():
    data = encoder.frame(1, 0, [encoder.item_packet(3, 1, BATCH)])
    for length in range(len(data)):
        with pytest.raises(FrameError):
            decoder.decode(data[:length], MAX)


def test_a_frame_above_the_limit_is_refused_before_it_is_parsed():
    data = encoder.frame(1, 0, [encoder.item_packet(3, 1, BATCH)])
    with pytest.raises(FrameError, match=r"a frame has \d+ bytes; 5 to"):
        decoder.decode(data, len(data) - 1)


ONE = codec.encode([{}])


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (with_packet(), "kind that this version does not know"),
        (with_packet(close=pb.CloseChannel()), "names no channel"),
        (with_packet(open=pb.OpenChannel(channel=1, source="a", target="b")), "0 characters"),
        (
            with_packet(open=pb.OpenChannel(channel=1, job="j" * 513, source="a", target="b")),
            "513 characters",
        ),
        (with_packet(data=pb.Data(channel=1, segments=2, payload=ONE)), "2 segments holds 1"),
        (with_packet(data=pb.Data(channel=1, payload=codec.encode([]))), "0 segments"),
        (with_packet(data=pb.Data(channel=1, segments=1, payload=b"\x80")), "no array"),
        (
            with_packet(data=pb.Data(channel=1, segments=1, payload=ONE, roots=bytes(8))),
            r"columns of \(8, 0\) bytes",
        ),
        (
            with_packet(data=pb.Data(channel=1, segments=2, payload=ONE, columns=b"x")),
            "to be of several forms",
        ),
        (with_packet(data=pb.Data(channel=1, segments=2**31, payload=ONE)), "2,147,483,648 seg"),
        (with_packet(data=pb.Data(channel=1, segments=2, columns=b"x")), "metadata is damaged"),
        (with_packet(data=pb.Data(channel=1, segments=2, states=b"\x90")), "have no lineage"),
        (with_packet(data=pb.Data(channel=1, segments=3, columns=COLUMNS.payload)), "holds 2"),
        (with_packet(schema=pb.Schema(channel=1, schema=b"x")), "not the schema of a batch"),
        (with_packet(schema=pb.Schema(schema=columns_codec.encode_schema(SCHEMA))), "no channel"),
        (with_packet(control=pb.Control(channel=1)), "control item 0 is not known"),
        (with_packet(control=pb.Control(channel=1, kind=9)), "control item 9 is not known"),
        (
            with_packet(control=pb.Control(channel=1, kind=4)),
            "control item EPOCH has the epoch 0",
        ),
        (
            with_packet(control=pb.Control(channel=1, kind=3, epoch=4)),
            "control item WATERMARK has the epoch 4",
        ),
        (
            with_packet(control=pb.Control(channel=1, kind=4, epoch=1, partitions=[1])),
            "1 partitions and 0 frontiers",
        ),
        (
            with_packet(
                control=pb.Control(
                    channel=1,
                    kind=4,
                    epoch=1,
                    partitions=range(FRONTIERS_MAX + 1),
                    frontiers=range(FRONTIERS_MAX + 1),
                )
            ),
            "1025 partitions and 1025 frontiers; at most 1024",
        ),
        (with_packet(acks=pb.Acks(job="j", acker="a")), "is empty"),
        (
            with_packet(acks=pb.Acks(job="j", acker="a", roots=bytes(8), values=bytes(9), count=1)),
            "9 bytes",
        ),
        (
            with_packet(completions=pb.Completions(job="j", target="a", roots=bytes(7), count=1)),
            "7 bytes",
        ),
        (
            with_packet(completions=pb.Completions(job="j", target="a", count=2**31)),
            "claims 2,147,483,648 values",
        ),
        (sealed(pb.Frame(packets=[pb.Packet(close=pb.CloseChannel(channel=1))])), "which is its"),
        (
            sealed(
                pb.Frame(
                    hello=pb.Hello(tenancy="t", group="a", target="b", link=1, session=1),
                    first=1,
                    packets=[pb.Packet(close=pb.CloseChannel(channel=1))],
                )
            ),
            "both a hello and packets",
        ),
        (sealed(pb.Frame(hello=pb.Hello(tenancy="t", group="a", target="b"))), "no session"),
    ],
)
def test_a_well_formed_message_that_makes_no_sense_is_refused(frame, message):
    with pytest.raises(FrameError, match=message):
        decoder.decode(frame, MAX)


def test_states_cross_the_network_with_their_lineage():
    partial = Partial(b"\x90", ROOTS, ROOTS)
    found = through_bytes(partial)
    assert isinstance(found, Partial)
    assert found.states == partial.states
    assert list(found.roots) == list(found.ids) == list(ROOTS)
