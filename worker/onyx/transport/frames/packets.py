"""What a frame may hold, as values; its limits, and its checksum: CRC-32, of the frame itself or of
sums that stand for it.

TCP's own 16 bits let one damaged packet in some millions pass, and a changed number in a segment
would go unnoticed. CRC-32 of a frame of 490 kB takes 130 to 230 us at each end. So a large frame is
folded first: it is rows of 1,151 words of 64 bits, and what is checked is the sum of each column of
words, what is left behind the last row, and the length. That takes 30 us.

A packet of a network has at most 9,000 bytes, and a row 9,208. So damage within one packet changes
each column at most once, and thereby its sum, wherever it is and whatever the packet's own checksum
lets pass, such as words that change places. Damage in several packets goes unnoticed only if the
changes of a column cancel each other out in 64 bits, or those of CRC-32 in 32.

Rejected: xxHash and CRC-32C by the processor, which take as long as the sums: one more dependency
of all workers. One sum of all words: it lets words change places.
"""

from __future__ import annotations

import zlib

import msgspec
import numpy as np
import pyarrow as pa

from onyx.base.runs import Numbers
from onyx.errors import Unavailable
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.ledger.returns import Trees
from onyx.settings import Compression
from onyx.transport.encoded import Encoded
from onyx.transport.interface import Channel, Control, LookUp, LookUpAnswer

PROTOCOL = 10
"""Version of the protocol; groups of different versions refuse each other. To be raised with every
change that an older reader would misunderstand."""
COLUMN_VALUES_MAX = 1_000_000
"""Roots in one packet of acks, completions or held trees, and segments in a batch."""
CHECKSUM_BYTES = 5
"""Its field in a frame, with the tag."""
CHECKSUM_TAG = bytes([(15 << 3) | 5])
"""The tag of `Frame.checksum`: field 15, four bytes of fixed length (wire type 5)."""
ROW_WORDS = 1_151
"""A prime, so that columns are not those of any table in a segment."""
ROW_BYTES = 8 * ROW_WORDS
FOLDED_FROM_BYTES = 4 * ROW_BYTES
"""Smaller frames are faster without."""


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
    machine: int = 0
    codecs: tuple[Compression, ...] = ()


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
    hungry: bool = False
    """The task has found nothing more after what it has taken."""


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
    Open
    | Close
    | Schema
    | Item
    | Credit
    | Acks
    | Completions
    | Held
    | Returns
    | LookUp
    | LookUpAnswer
)


class Frame(msgspec.Struct, frozen=True):
    """A frame as received."""

    first: int
    received: int
    packets: tuple[Packet, ...]


def checksum(body: bytes | memoryview) -> bytes:
    """Four bytes for all bytes of a frame before them."""
    size = len(body)
    if size < FOLDED_FROM_BYTES:
        return zlib.crc32(body).to_bytes(4, "little")
    rows = size // ROW_BYTES
    words = np.frombuffer(body, "<u8", rows * ROW_WORDS).reshape(rows, ROW_WORDS)
    columns = np.add.reduce(words, axis=0).astype("<u8", copy=False)
    found = zlib.crc32(columns.tobytes(), size)
    found = zlib.crc32(memoryview(body)[rows * ROW_BYTES :], found)
    return found.to_bytes(4, "little")
