"""Frames: what links say, as bytes. The only module that knows their protobuf classes.

gRPC is given raw bytes and not protobuf messages: a frame that cannot be parsed is then ours to
answer (a typed error and a resend) instead of an INTERNAL status from inside the library.

Packets are serialised once, each already as a frame of its own: concatenated protobuf messages
merge their repeated fields, so that a frame is a header and a join, a resend costs nothing, and the
size of everything that waits is known exactly. A checksum closes the frame: TCP's own 16 bits let
one damaged packet in some millions pass, and a changed number in a segment would go unnoticed.

Everything in a frame is checked here before any of it is delivered: a frame is taken wholly or not
at all. Errors are `FrameError`, whatever the bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from onyx.codec import segments as codec
from onyx.errors import SegmentError, Unavailable
from onyx.flow.batch import U64
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.path_names import is_path_name
from onyx.transport.inbox import Encoded
from onyx.transport.interface import FRONTIERS_MAX, Channel, Control, ControlKind
from onyx.wire.v1 import streams_pb2 as pb

PROTOCOL = 4
"""Version of the protocol; groups of different versions refuse each other. To be raised with every
change that an older reader would misunderstand."""
FRAME_OVERHEAD_BYTES = 128
"""Room for the header and checksum of a frame and the fixed fields of a packet."""
_TOLD_CHARS_MAX = 60
COLUMN_VALUES_MAX = 1_000_000

_CHECKSUM_BYTES = 5
_CHECKSUM_TAG = bytes([(15 << 3) | 5])
_PACKET_TAG, _DATA_TAG, _PAYLOAD_TAG = (bytes([(field << 3) | 2]) for field in (4, 3, 4))
"""Of `Frame.packets`, `Packet.data` and `Data.payload`: the large part of a batch is put into its
place here, because each message around it would copy it."""
_CONTROL_KINDS = {
    ControlKind.FLUSH: pb.CONTROL_KIND_FLUSH,
    ControlKind.END: pb.CONTROL_KIND_END,
    ControlKind.WATERMARK: pb.CONTROL_KIND_WATERMARK,
    ControlKind.EPOCH: pb.CONTROL_KIND_EPOCH,
}


class FrameError(Unavailable):
    """Bytes from another group are no valid frame, or not the one that is due. The stream is
    closed, and what was not received is sent again on the next."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of a stream, in both directions (`streams.proto` explains the fields)."""

    tenancy: str
    group: GroupId
    target: GroupId
    link: int
    session: int
    heard_session: int
    received: int
    link_bytes_max: int
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class Open:
    number: int
    channel: Channel


@dataclass(frozen=True, slots=True)
class Close:
    number: int


@dataclass(frozen=True, slots=True)
class Item:
    """A batch or control item on a channel."""

    number: int
    sequence: int
    item: Encoded | Control


@dataclass(frozen=True, slots=True)
class Credit:
    number: int
    taken: int
    window: int


@dataclass(frozen=True, slots=True)
class Acks:
    job: JobId
    version: AllocationVersion
    acker: PeerId
    roots: U64
    values: U64


@dataclass(frozen=True, slots=True)
class Completions:
    job: JobId
    version: AllocationVersion
    target: PeerId
    roots: U64
    retries_max: int


Packet = Open | Close | Item | Credit | Acks | Completions


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as received."""

    first: int
    received: int
    packets: tuple[Packet, ...]


# Writing


def hello_frame(hello: Hello) -> bytes:
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
    )
    return _sealed([pb.Frame(hello=message).SerializeToString()])


def frame(first: int, received: int, packets: Sequence[bytes]) -> bytes:
    """A frame of packets made by `open_packet` and the others below."""
    header = pb.Frame(first=first, received=received).SerializeToString()
    return _sealed([header, *packets])


def _sealed(parts: list[bytes]) -> bytes:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    parts.append(_CHECKSUM_TAG + checksum.to_bytes(4, "little"))
    return b"".join(parts)


def _packet(**kind: Any) -> bytes:
    data: bytes = pb.Frame(packets=(pb.Packet(**kind),)).SerializeToString()
    return data


def open_packet(number: int, channel: Channel) -> bytes:
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
    return _packet(close=pb.CloseChannel(channel=number))


def item_packet(number: int, sequence: int, item: Encoded | Control) -> bytes:
    if isinstance(item, Control):
        return _packet(
            control=pb.Control(
                channel=number,
                sequence=sequence,
                kind=_CONTROL_KINDS[item.kind],
                root=item.root,
                id=item.id,
                time_ms=item.time_ms,
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
    ).SerializeToString()
    payload = _PAYLOAD_TAG + _varint(len(item.payload))
    data = _DATA_TAG + _varint(len(lineage) + len(payload) + len(item.payload))
    packet = _PACKET_TAG + _varint(len(data) + len(lineage) + len(payload) + len(item.payload))
    return b"".join((packet, data, lineage, payload, item.payload))


def _varint(number: int) -> bytes:
    """A length, as protobuf writes it."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def credit_packet(number: int, taken: int, window: int) -> bytes:
    return _packet(credit=pb.Credit(channel=number, taken=taken, window=window))


def acks_packet(acks: Acks) -> bytes:
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


# Reading


def decode(data: bytes, frame_bytes_max: int) -> Frame | Hello:
    """A frame from bytes.

    Raises:
        FrameError: they are corrupt, larger than `frame_bytes_max`, or hold something unknown.
    """
    message = _parse(data, frame_bytes_max)
    if message.HasField("hello"):
        if message.packets:
            raise FrameError("a frame holds both a hello and packets")
        return _hello(message.hello)
    packets = tuple([_read(packet) for packet in message.packets])
    if packets and not message.first:
        raise FrameError("a frame of packets does not say which is its first")
    return Frame(message.first, message.received, packets)


def _parse(data: bytes, frame_bytes_max: int) -> pb.Frame:
    if not _CHECKSUM_BYTES <= len(data) <= frame_bytes_max:
        raise FrameError(f"a frame has {len(data)} bytes; 5 to {frame_bytes_max} are allowed")
    checksum = zlib.crc32(memoryview(data)[:-_CHECKSUM_BYTES])
    if data[-_CHECKSUM_BYTES:] != _CHECKSUM_TAG + checksum.to_bytes(4, "little"):
        raise FrameError(f"a frame of {len(data)} bytes is damaged: its checksum does not match")
    try:
        return pb.Frame.FromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise FrameError(f"a frame of {len(data)} bytes is no message: {error}") from error


def _hello(message: pb.Hello) -> Hello:
    for text in (message.tenancy, message.group, message.target):
        _identifier(text)
    if not message.link or not message.session:
        raise FrameError(f"the hello of group {message.group} names no session")
    return Hello(
        tenancy=message.tenancy,
        group=GroupId(message.group),
        target=GroupId(message.target),
        link=message.link,
        session=message.session,
        heard_session=message.heard_session,
        received=message.received,
        link_bytes_max=message.link_bytes_max,
        protocol=message.protocol,
    )


def _read(packet: pb.Packet) -> Packet:
    kind = packet.WhichOneof("kind")
    read = _READERS.get(kind)
    if read is None:
        raise FrameError("a packet is of a kind that this version does not know")
    return read(getattr(packet, kind))


def _identifier(text: str) -> str:
    if not is_path_name(text):
        told = f"{text[:_TOLD_CHARS_MAX]!a}, {len(text)} characters,"
        raise FrameError(f"{told} cannot be an identifier")
    return text


def _number(number: int) -> int:
    if number < 1:
        raise FrameError("a packet names no channel")
    return number


def _column(data: bytes, length: int) -> U64:
    if length > COLUMN_VALUES_MAX:
        raise FrameError(f"a column claims {length:,} values; at most {COLUMN_VALUES_MAX:,} may be")
    try:
        column = codec.decode_column(data, length)
    except SegmentError as error:
        raise FrameError(str(error)) from error
    if column is None:
        raise FrameError("a packet of acks or completions is empty")
    return column


def _read_open(message: pb.OpenChannel) -> Open:
    for text in (message.job, message.source, message.target):
        _identifier(text)
    return Open(
        _number(message.channel),
        Channel(
            JobId(message.job),
            AllocationVersion(message.version),
            PeerId(message.source),
            PeerId(message.target),
        ),
    )


def _read_data(message: pb.Data) -> Item:
    size = message.segments
    item = Encoded(size, message.payload, message.roots, message.ids)
    columns = (item.roots, item.ids)
    if any(columns) and not all(codec.is_column(each, size) for each in columns):
        sizes = (len(item.roots), len(item.ids))
        raise FrameError(f"a batch of {size} segments has columns of {sizes} bytes")
    try:
        claimed = codec.count(item.payload)
    except SegmentError as error:
        raise FrameError(str(error)) from error
    if size == 0 or claimed != size:
        raise FrameError(f"a batch of {size} segments holds {claimed}")
    return Item(_number(message.channel), message.sequence, item)


def _read_control(message: pb.Control) -> Item:
    try:
        kind = ControlKind(message.kind)
    except ValueError as error:
        raise FrameError(f"control item {message.kind} is not known to this version") from error
    control = Control(
        kind,
        message.root,
        message.id,
        message.time_ms if message.HasField("time_ms") else None,
        message.epoch,
        _frontiers(message),
    )
    if (kind is ControlKind.EPOCH) != bool(message.epoch):
        raise FrameError(f"control item {kind.name} has the epoch {message.epoch}")
    return Item(_number(message.channel), message.sequence, control)


def _frontiers(message: pb.Control) -> tuple[tuple[int, int], ...]:
    count = len(message.partitions)
    if count != len(message.frontiers) or count > FRONTIERS_MAX:
        told = f"{count} partitions and {len(message.frontiers)} frontiers"
        raise FrameError(f"an epoch tells of {told}; at most {FRONTIERS_MAX} of each may be")
    return tuple(zip(message.partitions, message.frontiers, strict=True))


def _read_acks(message: pb.Acks) -> Acks:
    return Acks(
        JobId(_identifier(message.job)),
        AllocationVersion(message.version),
        PeerId(_identifier(message.acker)),
        _column(message.roots, message.count),
        _column(message.values, message.count),
    )


def _read_completions(message: pb.Completions) -> Completions:
    return Completions(
        JobId(_identifier(message.job)),
        AllocationVersion(message.version),
        PeerId(_identifier(message.target)),
        _column(message.roots, message.count),
        message.retries_max,
    )


_READERS: dict[str | None, Callable[[Any], Packet]] = {
    "open": _read_open,
    "close": lambda message: Close(_number(message.channel)),
    "data": _read_data,
    "control": _read_control,
    "credit": lambda message: Credit(_number(message.channel), message.taken, message.window),
    "acks": _read_acks,
    "completions": _read_completions,
}
