"""Bytes of frames. A packet is serialised once, each already as a frame of its own.

Concatenated protobuf messages merge their repeated fields, so a frame is a header and a join, a
resend costs nothing, and the size of everything that waits is known exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from onyx.codec import segments as codec
from onyx.codec.columns import encode_schema
from onyx.ids import AllocationVersion, JobId, PeerId
from onyx.transport.encoded import Encoded
from onyx.transport.frames.compression import CODES
from onyx.transport.frames.packets import (
    CHECKSUM_TAG,
    Acks,
    Completions,
    Credit,
    Held,
    Hello,
    checksum,
)
from onyx.transport.interface import Channel, Control, ControlKind, LookUp, Lookup
from onyx.wire.v1 import streams_pb2 as pb

_PACKET_TAG, _DATA_TAG, _PAYLOAD_TAG, _COLUMNS_TAG, _STATES_TAG = (
    bytes([(field << 3) | 2]) for field in (4, 3, 4, 7, 8)
)
"""The tags of `Frame.packets`, `Packet.data`, `Data.payload`, `Data.columns` and `Data.states`,
each with a length (wire type 2): the large part of a batch is put in here, because each message
around it would copy it."""
_CONTROL_KINDS = {
    ControlKind.FLUSH: pb.CONTROL_KIND_FLUSH,
    ControlKind.END: pb.CONTROL_KIND_END,
    ControlKind.WATERMARK: pb.CONTROL_KIND_WATERMARK,
    ControlKind.EPOCH: pb.CONTROL_KIND_EPOCH,
}


def hello_frame(hello: Hello) -> bytes:
    """The first frame of a stream."""
    message = pb.Hello(
        protocol=hello.protocol,
        tenancy=hello.tenancy,
        group=hello.group,
        target=hello.target,
        link=hello.link,
        session=hello.session,
        heard_session=hello.heard_session,
        received=hello.received,
        link_bytes_max=hello.link_bytes_max,
        machine=hello.machine,
        codecs=[CODES[each] for each in hello.codecs],
    )
    return _sealed([pb.Frame(hello=message).SerializeToString()])


def frame(first: int, received: int, packets: Sequence[bytes]) -> bytes:
    """A frame of packets made by `open_packet` and the others below."""
    header = pb.Frame(first=first, received=received).SerializeToString()
    return _sealed([header, *packets])


def _sealed(parts: list[bytes]) -> bytes:
    body = b"".join(parts)
    return b"".join((body, CHECKSUM_TAG, checksum(body)))


def _packet(**kind: Any) -> bytes:
    data: bytes = pb.Frame(packets=(pb.Packet(**kind),)).SerializeToString()
    return data


def open_packet(number: int, channel: Channel) -> bytes:
    """A packet that opens a channel."""
    return _packet(
        open=pb.OpenChannel(
            channel=number,
            job=channel.job,
            version=channel.version,
            source=channel.source,
            target=channel.target,
        )
    )


def close_packet(number: int) -> bytes:
    """A packet that closes a channel."""
    return _packet(close=pb.CloseChannel(channel=number))


def schema_packet(number: int, schema: pa.Schema) -> bytes:
    """A packet with the schema of what follows on a channel.

    Raises:
        SegmentError: it is larger than `SCHEMA_BYTES_MAX`.
    """
    return _packet(schema=pb.Schema(channel=number, schema=encode_schema(schema)))


def item_packet(number: int, sequence: int, item: Encoded | Control) -> bytes:
    """A packet with a batch or control item. `sequence` counts the items of the channel from 1."""
    if isinstance(item, Control):
        return _packet(
            control=pb.Control(
                channel=number,
                sequence=sequence,
                kind=_CONTROL_KINDS[item.kind],
                root=item.root,
                id=item.id,
                time_ms=item.time_ms,
                lull=item.lull,
                epoch=item.epoch,
                partitions=[partition for partition, _ in item.frontiers],
                frontiers=[position for _, position in item.frontiers],
            )
        )
    lineage = pb.Data(
        channel=number,
        sequence=sequence,
        segments=item.segments,
        roots=item.roots,
        ids=item.ids,
        laps=item.laps,
    ).SerializeToString()
    payload = _payload_tag(item) + _varint(len(item.payload))
    data = _DATA_TAG + _varint(len(lineage) + len(payload) + len(item.payload))
    packet = _PACKET_TAG + _varint(len(data) + len(lineage) + len(payload) + len(item.payload))
    return b"".join((packet, data, lineage, payload, item.payload))


def _payload_tag(item: Encoded) -> bytes:
    if item.folded:
        return _STATES_TAG
    return _COLUMNS_TAG if item.columnar else _PAYLOAD_TAG


def _varint(number: int) -> bytes:
    """A length, as protobuf writes it."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def credit_packet(credit: Credit) -> bytes:
    """A packet with the totals of a channel, in segments."""
    return _packet(
        credit=pb.Credit(
            channel=credit.number, taken=credit.taken, window=credit.window, hungry=credit.hungry
        )
    )


def acks_packet(acks: Acks) -> bytes:
    """A packet with acks. At most `COLUMN_VALUES_MAX` roots."""
    return _packet(
        acks=pb.Acks(
            job=acks.job,
            version=acks.version,
            acker=acks.acker,
            roots=codec.encode_column(acks.roots),
            values=codec.encode_column(acks.values),
            count=len(acks.roots),
        )
    )


def completions_packet(completions: Completions) -> bytes:
    """A packet with completions. At most `COLUMN_VALUES_MAX` roots."""
    return _packet(
        completions=pb.Completions(
            job=completions.job,
            version=completions.version,
            target=completions.target,
            roots=codec.encode_column(completions.roots),
            retries_max=completions.retries_max,
            count=len(completions.roots),
        )
    )


def returns_packet(
    job: JobId, version: AllocationVersion, target: PeerId, trees: bytes, to_acker: bool
) -> bytes:
    """A packet with what functions give back (`codec.values`)."""
    returns = pb.Returns(job=job, version=version, target=target, trees=trees, to_acker=to_acker)
    return _packet(returns=returns)


def lookup_packet(message: Lookup) -> bytes:
    """A packet with a question about a state, or its answer."""
    fields = msgspec.structs.asdict(message)
    if isinstance(message, LookUp):
        return _packet(look_up=pb.LookUp(**fields))
    return _packet(found=pb.Found(**fields))


def held_packet(held: Held) -> bytes:
    """A packet with trees that somebody works on. At most `COLUMN_VALUES_MAX` roots."""
    return _packet(
        held=pb.Held(
            job=held.job,
            version=held.version,
            target=held.target,
            roots=codec.encode_column(held.roots),
            count=len(held.roots),
        )
    )
