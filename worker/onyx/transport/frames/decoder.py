"""Frames from bytes, whatever the bytes: a frame is taken wholly or not at all.

Everything in a frame is checked here, before any of it is delivered. The only error is
`FrameError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError
from msgspec.structs import replace

from onyx.base.path_names import is_path_name
from onyx.base.runs import Numbers
from onyx.codec import columns as columns_codec
from onyx.codec import segments as codec
from onyx.codec.values import decode_returns
from onyx.errors import SegmentError
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.transport.encoded import Encoded
from onyx.transport.frames.compression import NAMES
from onyx.transport.frames.packets import (
    CHECKSUM_BYTES,
    CHECKSUM_TAG,
    COLUMN_VALUES_MAX,
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
    Packet,
    Returns,
    Schema,
    checksum,
)
from onyx.transport.interface import (
    FRONTIERS_MAX,
    Channel,
    Control,
    ControlKind,
    LookUp,
    LookUpAnswer,
)
from onyx.wire.v1 import streams_pb2 as pb

_SHOWN_CHARACTERS_MAX = 60


def decode(data: bytes, frame_bytes_max: int) -> Frame | Hello:
    """A frame from bytes.

    Raises:
        FrameError: they are corrupt, larger than `frame_bytes_max`, or hold something unknown.
    """
    message = _parse(data, frame_bytes_max)
    if message.HasField("compressed"):
        raise FrameError("a frame is compressed where it must not be")
    if message.HasField("hello"):
        if message.packets:
            raise FrameError("a frame holds both a hello and packets")
        return _hello(message.hello)
    packets = tuple([_read(packet) for packet in message.packets])
    if packets and not message.first:
        raise FrameError("a frame of packets does not say which is its first")
    return Frame(message.first, message.received, packets)


def _parse(data: bytes, frame_bytes_max: int) -> pb.Frame:
    if not CHECKSUM_BYTES <= len(data) <= frame_bytes_max:
        raise FrameError(f"a frame has {len(data)} bytes; 5 to {frame_bytes_max} are allowed")
    found = checksum(memoryview(data)[:-CHECKSUM_BYTES])
    if data[-CHECKSUM_BYTES:] != CHECKSUM_TAG + found:
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
        machine=message.machine,
        codecs=tuple([NAMES[each] for each in message.codecs if each in NAMES]),
    )


def _read(packet: pb.Packet) -> Packet:
    kind = packet.WhichOneof("kind")
    read = _READERS.get(kind)
    if read is None:
        raise FrameError("a packet is of a kind that this version does not know")
    return read(getattr(packet, kind))


def _identifier(text: str) -> str:
    if not is_path_name(text):
        shown = f"{text[:_SHOWN_CHARACTERS_MAX]!a}, {len(text)} characters,"
        raise FrameError(f"{shown} cannot be an identifier")
    return text


def _number(number: int) -> int:
    if number < 1:
        raise FrameError("a packet names no channel")
    return number


def _column(data: bytes, length: int) -> Numbers:
    if length > COLUMN_VALUES_MAX:
        raise FrameError(f"a column claims {length:,} values; at most {COLUMN_VALUES_MAX:,} may be")
    try:
        column = codec.decode_column(data, length)
    except SegmentError as error:
        raise FrameError(str(error)) from error
    if column is None:
        raise FrameError("a packet of acks, completions or held trees is empty")
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
    size, columnar, folded = message.segments, bool(message.columns), bool(message.states)
    forms = (message.payload, message.columns, message.states)
    if size > COLUMN_VALUES_MAX or sum(map(bool, forms)) > 1:
        raise FrameError(f"a batch claims {size:,} segments, or to be of several forms")
    payload = next(filter(None, forms), b"")
    item = Encoded(size, payload, message.roots, message.ids, columnar=columnar, folded=folded)
    if message.laps:
        item = replace(item, laps=message.laps)
    columns = (item.roots, item.ids)
    if item.laps and not codec.is_column(item.laps, size):
        raise FrameError(f"a batch of {size} segments has laps of {len(item.laps)} bytes")
    if any(columns) and not all(codec.is_column(each, size) for each in columns):
        sizes = (len(item.roots), len(item.ids))
        raise FrameError(f"a batch of {size} segments has columns of {sizes} bytes")
    if folded:
        if size == 0 or not any(columns):
            raise FrameError(f"states of {size} segments have no lineage")
        return Item(_number(message.channel), message.sequence, item)
    try:
        claimed = columns_codec.count(payload) if columnar else codec.count(payload)
    except SegmentError as error:
        raise FrameError(str(error)) from error
    if size == 0 or claimed != size:
        raise FrameError(f"a batch of {size} segments holds {claimed}")
    return Item(_number(message.channel), message.sequence, item)


def _read_schema(message: pb.Schema) -> Schema:
    try:
        schema = columns_codec.decode_schema(message.schema)
    except SegmentError as error:
        raise FrameError(str(error)) from error
    return Schema(_number(message.channel), schema)


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
        message.lull,
        message.epoch,
        _frontiers(message),
    )
    if (kind is ControlKind.EPOCH) != bool(message.epoch):
        raise FrameError(f"control item {kind.name} has the epoch {message.epoch}")
    return Item(_number(message.channel), message.sequence, control)


def _frontiers(message: pb.Control) -> tuple[tuple[int, int], ...]:
    count = len(message.partitions)
    if count != len(message.frontiers) or count > FRONTIERS_MAX:
        found = f"{count} partitions and {len(message.frontiers)} frontiers"
        raise FrameError(f"an epoch has {found}; at most {FRONTIERS_MAX} of each are allowed")
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


def _read_held(message: pb.Held) -> Held:
    return Held(
        JobId(_identifier(message.job)),
        AllocationVersion(message.version),
        PeerId(_identifier(message.target)),
        _column(message.roots, message.count),
    )


def _read_returns(message: pb.Returns) -> Returns:
    try:
        trees = decode_returns(message.trees)
    except SegmentError as error:
        raise FrameError(str(error)) from error
    return Returns(
        JobId(_identifier(message.job)),
        AllocationVersion(message.version),
        PeerId(_identifier(message.target)),
        trees,
        message.to_acker,
    )


def _read_look_up(message: pb.LookUp) -> LookUp:
    return LookUp(
        JobId(_identifier(message.job)),
        AllocationVersion(message.version),
        PeerId(_identifier(message.target)),
        GroupId(_identifier(message.group)),
        PeerId(_identifier(message.asker)),
        message.number,
        message.state,
        message.keys,
        message.durable,
    )


def _read_found(message: pb.Found) -> LookUpAnswer:
    return LookUpAnswer(
        JobId(_identifier(message.job)),
        AllocationVersion(message.version),
        PeerId(_identifier(message.target)),
        message.number,
        message.states,
        message.error,
    )


_READERS: dict[str | None, Callable[[Any], Packet]] = {
    "open": _read_open,
    "close": lambda message: Close(_number(message.channel)),
    "schema": _read_schema,
    "data": _read_data,
    "control": _read_control,
    "credit": lambda message: Credit(
        _number(message.channel), message.taken, message.window, message.hungry
    ),
    "acks": _read_acks,
    "completions": _read_completions,
    "held": _read_held,
    "returns": _read_returns,
    "look_up": _read_look_up,
    "found": _read_found,
}
