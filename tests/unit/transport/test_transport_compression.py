"""Frames between machines may be compressed: they come out whole, or are a FrameError."""

import random

import numpy as np
import pyarrow as pa
import pytest
from tests.support.clocks import ManualClock

from onyx.errors import SettingsError
from onyx.flow.batch import Batch
from onyx.flow.columns.record_batch import Columns
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.settings import TransportSettings
from onyx.transport.encoded import encoded
from onyx.transport.frames import compression, decoder, encoder
from onyx.transport.frames.compression import agreed, check_compression, compressed, plain
from onyx.transport.frames.packets import Credit, FrameError, Hello
from onyx.transport.hello import Ends, Stream, Surroundings
from onyx.transport.inbox import Inboxes
from onyx.transport.interface import Bounds, Channel
from onyx.transport.link import Link
from onyx.wire.v1 import streams_pb2 as pb

MAX = 4_000_000
CODECS = ("lz4", "zstd")
CHANNEL = Channel(JobId("job"), AllocationVersion(1), PeerId("p"), PeerId("q"))
NUMBERS = np.arange(1_000, dtype=np.uint64)
DICTS = [{"id": int(number), "name": "somebody"} for number in NUMBERS]
COLUMNS = Columns(pa.record_batch({"id": NUMBERS, "name": ["somebody"] * 1_000}))


def frame_of(segments) -> bytes:
    item = encoded(Batch(segments, NUMBERS, NUMBERS))
    return encoder.frame(1, 0, [encoder.item_packet(1, 1, item)])


def message(code: int, frame_bytes: int, data: bytes) -> bytes:
    inner = pb.Compressed(codec=code, frame_bytes=frame_bytes, data=data)
    return pb.Frame(compressed=inner).SerializeToString()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("segments", [DICTS, COLUMNS], ids=["dicts", "columns"])
def test_a_frame_is_smaller_on_the_wire_and_comes_out_as_it_was(segments, codec):
    frame = frame_of(segments)
    wire = compressed(frame, codec)
    assert len(wire) < len(frame) / 2
    assert plain(wire, MAX) == frame


@pytest.mark.parametrize("codec", ["none", *CODECS])
def test_what_would_not_be_smaller_goes_as_it_is(codec):
    noise = random.Random(1).randbytes(10_000)
    few = encoder.frame(1, 0, [encoder.credit_packet(Credit(1, 2, 3))])
    for frame in (noise, few, *([frame_of(DICTS)] if codec == "none" else ())):
        assert compressed(frame, codec) == frame == plain(frame, MAX)


FRAME = frame_of(DICTS)
DATA = {codec: pa.Codec(codec).compress(FRAME, asbytes=True) for codec in CODECS}
SIZE = len(FRAME)
LZ4, ZSTD = pb.CODEC_LZ4, pb.CODEC_ZSTD
WRONG = {
    "unknown codec": (message(7, SIZE, DATA["lz4"]), "codec 7, which this process does not have"),
    "no codec": (message(0, SIZE, DATA["lz4"]), "codec 0"),
    "too large": (message(ZSTD, MAX + 1, DATA["zstd"]), f"{MAX + 1} bytes; at most {MAX}"),
    "larger than it says, lz4": (message(LZ4, SIZE - 1, DATA["lz4"]), "damaged"),
    "larger than it says, zstd": (message(ZSTD, SIZE - 1, DATA["zstd"]), "damaged"),
    "smaller than it says, lz4": (message(LZ4, SIZE + 99, DATA["lz4"]), "checksum does not match"),
    "smaller than it says, zstd": (message(ZSTD, SIZE + 99, DATA["zstd"]), "damaged"),
    "cut off": (message(LZ4, SIZE, DATA["lz4"][:-9]), "damaged"),
    "nothing": (message(ZSTD, SIZE, b""), "damaged"),
    "another codec": (message(ZSTD, SIZE, DATA["lz4"]), "damaged"),
    "no message": (b"\x2a\xff\xff", "no message"),
}


@pytest.mark.parametrize(("wire", "problem"), WRONG.values(), ids=WRONG)
def test_a_frame_that_cannot_be_read_says_why(wire, problem):
    with pytest.raises(FrameError, match=problem):
        decoder.decode(plain(wire, MAX), MAX)


def test_a_frame_within_a_frame_is_read_once():
    twice = compressed(compressed(frame_of(DICTS) * 50, "lz4"), "zstd")
    with pytest.raises(FrameError):
        decoder.decode(plain(twice, MAX), MAX)
    inner = pb.Frame(compressed=pb.Compressed(codec=LZ4)).SerializeToString()
    with pytest.raises(FrameError, match="compressed where it must not be"):
        decoder.decode(encoder._sealed([inner]), MAX)


HELLO = Hello("tenancy", GroupId("a"), GroupId("b"), 1, 1, 0, 0, 9, machine=5, codecs=("zstd",))


@pytest.mark.parametrize(
    ("wanted", "machine", "codec"),
    [
        ("none", 6, "none"),
        ("zstd", 6, "zstd"),
        ("zstd", 5, "none"),  # the same machine
        ("lz4", 6, "none"),  # the other side does not read it
    ],
)
def test_a_codec_is_used_with_another_machine_that_reads_it(wanted, machine, codec):
    assert agreed(wanted, machine, HELLO) == codec


def test_a_hello_says_what_is_read_and_codecs_of_the_future_are_left_out():
    assert decoder.decode(encoder.hello_frame(HELLO), MAX) == HELLO
    later = pb.Frame.FromString(encoder.hello_frame(HELLO)[:-5])
    later.hello.codecs.append(77)
    assert decoder.decode(encoder._sealed([later.SerializeToString()]), MAX) == HELLO


def test_a_codec_that_is_not_here_ends_a_worker_at_its_start(monkeypatch):
    check_compression("lz4")
    monkeypatch.setattr(compression, "READ", ("lz4",))
    with pytest.raises(SettingsError, match=r"ONYX_TRANSPORT_COMPRESSION=zstd needs a PyArrow"):
        check_compression("zstd")


class Side:
    """One end of a link."""

    def __init__(self, here: str, there: str, machine: int, **settings) -> None:
        self.inboxes, self.clock = Inboxes(), ManualClock()
        around = Surroundings(
            TransportSettings(**settings),
            self.inboxes,
            self,
            lambda: None,
            self.clock,
            random.Random(here),
            machine,
        )
        self.link = Link(Ends("tenancy", GroupId(here), GroupId(there)), around)
        self.inboxes.listen(self.link.inbox_opened, self.link.inbox_closed)
        self.stream = Stream(lambda: None)

    def write(self, other: "Side") -> int:
        """The next frame goes to the other side; how many bytes it has on the wire."""
        self.clock.advance(1.0)
        frame = next(self.link.outgoing(self.stream))
        other.link.receive(other.stream, frame)
        return len(frame)


def connected(machines, near="none", far="none", **settings) -> tuple[Side, Side]:
    first = Side("a", "b", machines[0], compression=near, **settings)
    second = Side("b", "a", machines[1], compression=far, **settings)
    second.inboxes.open(
        (CHANNEL.job, CHANNEL.version, CHANNEL.target),
        Bounds(100_000, 1 << 26),
        lambda: None,
        lambda: None,
    )
    second.link.attach(second.stream, decoder.decode(first.link.hello(), MAX))
    first.link.attach(first.stream, decoder.decode(second.link.hello(), MAX))
    first.link.send(CHANNEL, Batch(DICTS[:1]))  # opens the channel
    first.write(second)
    second.write(first)  # credit
    return first, second


@pytest.mark.parametrize(
    ("machines", "near", "far", "smaller"),
    [
        ((1, 2), "zstd", "none", True),  # each side says it for what it sends
        ((1, 2), "lz4", "zstd", True),
        ((1, 2), "none", "zstd", False),
        ((1, 1), "zstd", "zstd", False),
    ],
)
def test_what_is_sent_is_counted_as_it_is_on_the_wire(machines, near, far, smaller):
    first, second = connected(machines, near, far)
    before = first.link.counters.sent_bytes, second.link.counters.received_bytes
    assert first.link.send(CHANNEL, Batch(DICTS, NUMBERS, NUMBERS))
    size = first.write(second)
    assert first.link.counters.sent_bytes - before[0] == size
    assert second.link.counters.received_bytes - before[1] == size
    assert (size < len(FRAME) / 2) == smaller


def test_a_receiver_says_what_it_has_by_bytes_that_its_sender_holds():
    """These are not compressed: a sender that waits for a quarter of them would wait for long."""
    first, second = connected((1, 2), "zstd", link_bytes_max=2 * len(FRAME))
    assert first.link.send(CHANNEL, Batch(DICTS, NUMBERS, NUMBERS))
    assert first.write(second) < len(FRAME) / 4
    assert second.link._wait_s(second.clock.monotonic_s()) <= 0.01
