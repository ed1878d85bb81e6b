"""The schema of a channel: sent before the first batch of columns, again when it changes and when
the other group has forgotten the channel."""

import threading

import pyarrow as pa
import pytest

from onyx.codec import columns as codec
from onyx.flow.batch import Batch
from onyx.flow.columns.record_batch import Columns
from onyx.ids import AllocationVersion, JobId, PeerId
from onyx.settings import TransportSettings
from onyx.transport.counters import Counters
from onyx.transport.encoded import Encoded, encoded
from onyx.transport.frames import decoder, encoder
from onyx.transport.frames.packets import Credit, FrameError, Item, Open, Schema
from onyx.transport.inbox import Inboxes
from onyx.transport.interface import FLUSH, Bounds, Channel
from onyx.transport.receiving import Receiving
from onyx.transport.sending import Sending, Urgency

CHANNEL = Channel(JobId("job"), AllocationVersion(1), PeerId("a"), PeerId("b"))
NUMBERS = Columns(pa.record_batch({"n": [1, 2]}))
TEXTS = Columns(pa.record_batch({"n": ["1", "2"]}))
DICTS = [{"n": 1}, {"n": 2}]


class Sender:
    def __init__(self) -> None:
        self.sending = Sending(1, TransportSettings(), Counters(), lambda: None)
        self.last_number = 0

    def send(self, *items) -> list[str]:
        """Send on the channel; the kinds of the packets that go out for it."""
        out = self.sending.admit(CHANNEL, 1)
        if out is None:
            self.last_number += 1
            assert self.sending.credit(Credit(self.last_number, 0, 100))
            out = self.sending.admit(CHANNEL, 1)
        for item in items:
            piece = item if item is FLUSH else encoded(Batch(item))
            assert self.sending.queue(out, [piece])
        _, packets = self.sending.packets.next_packets(1_000_000, 1_000_000)
        frame = decoder.decode(encoder.frame(1, 0, packets), 1_000_000)
        return [type(packet).__name__ for packet in frame.packets]


def test_a_schema_goes_before_the_first_batch_of_columns_and_when_it_changes():
    sender = Sender()
    assert sender.send(DICTS, FLUSH) == ["Open", "Item", "Item"]
    assert sender.send(NUMBERS, NUMBERS, DICTS) == ["Schema", "Item", "Item", "Item"]
    assert sender.send(NUMBERS.slice(1, 2), FLUSH) == ["Item", "Item"]
    assert sender.send(TEXTS) == ["Schema", "Item"]
    assert sender.send(NUMBERS) == ["Schema", "Item"]


def test_what_waits_goes_at_once_when_a_sender_is_refused():
    sender = Sender()
    sender.send(DICTS)
    out = sender.sending.admit(CHANNEL, 1)
    sender.sending.queue(out, [encoded(Batch(DICTS))] * 60, Urgency.GATHER)
    assert sender.sending.packets.urgency is Urgency.GATHER
    assert sender.sending.admit(CHANNEL, 1) is None
    assert sender.sending.packets.urgency is Urgency.FLUSH


def test_a_new_session_sends_the_schema_again():
    sender = Sender()
    assert sender.send(NUMBERS) == ["Open", "Schema", "Item"]
    sender.sending.restart(2)
    assert sender.send(NUMBERS) == ["Open", "Schema", "Item"]


class Receiver:
    def __init__(self) -> None:
        inboxes = Inboxes()
        key = (CHANNEL.job, CHANNEL.version, CHANNEL.target)
        self.inbox = inboxes.open(key, Bounds(100, 1 << 26), lambda: None, lambda: None)
        self.receiving = Receiving(threading.Lock(), inboxes, Counters(), lambda packet: None)
        self.receiving.agree(1)

    def columns(self, sequence: int) -> list[list[dict]]:
        """Rows come, without their schema as on the wire; what the task takes."""
        payload = codec.encode(NUMBERS)
        item = Encoded(2, payload, b"", b"", columnar=True)
        self.receiving.deliver(Item(1, sequence, item))
        return [each.item.segments.record_batch.to_pylist() for each in self.inbox.take(10)]


def test_columns_are_of_the_schema_that_came_last_on_their_channel():
    receiver = Receiver()
    receiver.receiving.open(Open(1, CHANNEL))
    receiver.receiving.take_schema(Schema(1, pa.schema([("n", pa.int64())])))
    assert receiver.columns(1) == [DICTS]
    assert receiver.columns(2) == [DICTS]
    receiver.receiving.take_schema(Schema(1, pa.schema([("m", pa.int64())])))
    assert receiver.columns(3) == [[{"m": 1}, {"m": 2}]]


def test_columns_without_a_schema_break_the_stream():
    receiver = Receiver()
    receiver.receiving.open(Open(1, CHANNEL))
    with pytest.raises(FrameError, match="columns came on channel 1 before their schema"):
        receiver.columns(1)


def test_a_schema_for_a_channel_that_is_not_open_breaks_the_stream():
    with pytest.raises(FrameError, match="a schema came on channel 7, which is not open"):
        Receiver().receiving.take_schema(Schema(7, NUMBERS.record_batch.schema))


def test_a_new_session_forgets_the_schemas_of_the_old_one():
    receiver = Receiver()
    receiver.receiving.open(Open(1, CHANNEL))
    receiver.receiving.take_schema(Schema(1, NUMBERS.record_batch.schema))
    receiver.receiving.agree(2)
    receiver.receiving.open(Open(1, CHANNEL))
    with pytest.raises(FrameError, match="before their schema"):
        receiver.columns(1)
