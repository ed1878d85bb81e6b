"""What a frame may hold, as values; and its limits."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from onyx.base.runs import Numbers
from onyx.errors import Unavailable
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.ledger.returns import Trees
from onyx.transport.encoded import Encoded
from onyx.transport.interface import Channel, Control
from onyx.transport.lookups import Found, LookUp

PROTOCOL = 10
"""Version of the protocol; groups of different versions refuse each other. To be raised with every
change that an older reader would misunderstand."""
FRAME_OVERHEAD_BYTES = 128
"""Room for the header and checksum of a frame and the fixed fields of a packet."""
COLUMN_VALUES_MAX = 1_000_000
"""Roots in one packet of acks, completions or held trees, and segments in a batch."""


class FrameError(Unavailable):
    """Bytes from another group are no valid frame, or not the one that is due. The stream is
    closed, and what was not received is sent again on the next."""


class Hello(msgspec.Struct, frozen=True):
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


class Open(msgspec.Struct, frozen=True):
    """A channel gets a number. Numbers of a session only grow."""

    number: int
    channel: Channel


class Close(msgspec.Struct, frozen=True):
    """The sender will not use this channel number again."""

    number: int


class Schema(msgspec.Struct, frozen=True):
    """The schema of the batches of columns that follow on a channel, until there is another."""

    number: int
    schema: pa.Schema


class Item(msgspec.Struct, frozen=True):
    """A batch or control item on a channel."""

    number: int
    sequence: int
    item: Encoded | Control


class Credit(msgspec.Struct, frozen=True):
    """What the receiver of a channel has taken in all, and its window, in segments."""

    number: int
    taken: int
    window: int


class Acks(msgspec.Struct, frozen=True):
    """For an acker: values to XOR into roots, two columns of the same length."""

    job: JobId
    version: AllocationVersion
    acker: PeerId
    roots: Numbers
    values: Numbers


class Completions(msgspec.Struct, frozen=True):
    """For an input: roots whose trees are complete, or are to be read again (`retries_max` > 0)."""

    job: JobId
    version: AllocationVersion
    target: PeerId
    roots: Numbers
    retries_max: int


class Held(msgspec.Struct, frozen=True):
    """For an input or an acker: roots of trees on which somebody works."""

    job: JobId
    version: AllocationVersion
    target: PeerId
    roots: Numbers


class Returns(msgspec.Struct, frozen=True):
    """For an acker, or from one for an input: what functions give back for trees."""

    job: JobId
    version: AllocationVersion
    target: PeerId
    trees: Trees
    to_acker: bool


Packet = (
    Open | Close | Schema | Item | Credit | Acks | Completions | Held | Returns | LookUp | Found
)


class Frame(msgspec.Struct, frozen=True):
    """A frame as received."""

    first: int
    received: int
    packets: tuple[Packet, ...]
