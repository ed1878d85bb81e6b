"""Columns as bytes: an Arrow IPC message for a batch, and one for its schema.

The message of a batch does not hold its schema, which whoever encodes batches sends once before
them. Nothing is compressed: between processes of a machine or a data centre that costs more than
the bytes, and a few bytes cannot become many.

Decoding looks at the message's metadata itself first (`announced`), and only then has Arrow read
it: Arrow would expand compressed bodies, and take any number of values that occupy no bytes, such
as nulls. It then checks every value (`validate(full=True)`, 65 us for 10,000 rows with strings, a
third of what it costs to encode them): a damaged offset would otherwise read memory that is none of
ours, in whatever task first looks at the column.

Rejected: an IPC stream a channel, with a reader that keeps the schema. It cannot begin again where
a broken stream ended, and copies each message.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from onyx.errors import SegmentError, UserError
from onyx.flow.columns.record_batch import Columns
from onyx.flow.columns.types import usual_schema

SCHEMA_BYTES_MAX = 262_144
"""The size of one schema, encoded: some 5,000 columns."""
ROWS_MAX = 1_000_000
"""The rows of one encoded batch, so that values that occupy no bytes are bounded too."""

_WRONG = (pa.ArrowException, OSError, ValueError, TypeError, OverflowError, MemoryError)
"""What pyarrow raises for bytes that make no sense; UnicodeDecodeError is a ValueError."""
_CONTINUATION = b"\xff\xff\xff\xff"
_DICTIONARY, _RECORD_BATCH = 2, 3
"""Kinds of a message, as the fields below by number: `Message.fbs` of the Arrow format."""
_KIND, _HEADER, _BODY_BYTES = 1, 2, 3
_LENGTH, _NODES, _BUFFERS, _COMPRESSION = 0, 1, 2, 3
_OF_DICTIONARY = 1
"""The values of a dictionary, which are a record batch."""


def encode_schema(schema: pa.Schema) -> bytes:
    """A schema as one IPC message.

    Raises:
        SegmentError: it has more than `SCHEMA_BYTES_MAX` bytes.
    """
    payload: bytes = schema.serialize().to_pybytes()
    if len(payload) > SCHEMA_BYTES_MAX:
        raise SegmentError(
            f"the batch has {len(schema)} columns, whose names and types take {len(payload)} "
            f"bytes; at most {SCHEMA_BYTES_MAX} may travel: use fewer columns, or lists"
        )
    return payload


@lru_cache(maxsize=64)
def decode_schema(payload: bytes) -> pa.Schema:
    """The schema of `encode_schema`. Equal bytes give the same object: channels share it.

    Raises:
        SegmentError: the bytes are no schema, or one that columns cannot have.
    """
    if len(payload) > SCHEMA_BYTES_MAX:
        raise SegmentError(f"a schema has {len(payload)} bytes; {SCHEMA_BYTES_MAX} are allowed")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(payload))
        if usual_schema(schema) is None:
            return schema
        reason = "it has types that columns do not have between tasks"
    except (*_WRONG, UserError) as error:
        reason = str(error)
    raise SegmentError(f"{len(payload)} bytes are not the schema of a batch: {reason}")


def encode(columns: Columns) -> bytes:
    """One IPC message of all rows, without the schema."""
    payload: bytes = columns.record_batch.serialize().to_pybytes()
    return payload


def encoded_bytes(columns: Columns) -> int:
    """What `encode` would give. Nothing is copied: 2 us."""
    return int(pa.ipc.get_record_batch_size(columns.record_batch))


def decode(payload: bytes, schema: pa.Schema) -> Columns:
    """The rows of `encode`; they refer to `payload`.

    Raises:
        SegmentError: the bytes are not a batch of this schema.
    """
    rows = count(payload)
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
        batch.validate(full=True)
    except _WRONG as error:
        raise _wrong(payload, str(error)) from error
    if batch.num_rows != rows:
        raise _wrong(payload, f"{batch.num_rows} rows where {rows} were announced")
    return Columns(batch)


def count(payload: bytes) -> int:
    """How many rows a payload claims to hold, from its metadata alone.

    Raises:
        SegmentError: it is no record batch, is compressed, or claims more values than its bytes
            can hold.
    """
    try:
        if payload[:4] != _CONTINUATION:
            raise ValueError("not an IPC message")
        (size,) = struct.unpack_from("<I", payload, 4)
        said = announced(payload[8 : 8 + size])
    except DAMAGED as error:
        raise _wrong(payload, "their metadata is damaged") from error
    if said.is_dictionary:
        raise _wrong(payload, "they are a dictionary")
    if said.sizes_at is not None:
        raise _wrong(payload, "they are compressed")
    if not said.fits(len(payload)):
        values = f"{said.values_most} values in one column"
        raise _wrong(payload, f"they claim {said.rows} rows, and {values}")
    return said.rows


DAMAGED = (struct.error, IndexError, ValueError)
"""What `announced` raises for bytes that are no metadata of a batch."""


class Announced(NamedTuple):
    """What a message says of itself, before anything is made of it."""

    rows: int
    values_most: int
    """The values of the column, or the child of one, that has most."""
    sizes_at: list[int] | None
    """Where in the body the size of each buffer stands, if the buffers are compressed."""
    is_dictionary: bool
    body_bytes: int
    """The size of the body, which follows the metadata."""

    def fits(self, size: int) -> bool:
        """Whether a message of so many bytes may hold so many rows and values."""
        return 0 <= self.rows <= ROWS_MAX and self.values_most <= max(ROWS_MAX, 8 * size)


def announced(metadata: bytes) -> Announced:
    """What the metadata of a message says. Raises what `DAMAGED` lists."""
    (message,) = struct.unpack_from("<I", metadata)
    kind = _field(metadata, message, _KIND)
    if not kind or metadata[kind] not in (_DICTIONARY, _RECORD_BATCH):
        raise ValueError("not a record batch")
    is_dictionary = metadata[kind] == _DICTIONARY
    batch = _target(metadata, _field(metadata, message, _HEADER))
    if is_dictionary:
        batch = _target(metadata, _field(metadata, batch, _OF_DICTIONARY))
    length = _field(metadata, batch, _LENGTH)
    (rows,) = struct.unpack_from("<q", metadata, length) if length else (0,)
    values_most = rows
    if nodes := _field(metadata, batch, _NODES):
        start = _target(metadata, nodes)
        (number,) = struct.unpack_from("<I", metadata, start)
        lengths = np.frombuffer(metadata, "<u8", 2 * number, start + 4)[::2]
        values_most = max(rows, int(lengths.max(initial=0)))
    sizes_at = _held(metadata, batch) if _field(metadata, batch, _COMPRESSION) else None
    at = _field(metadata, message, _BODY_BYTES)
    (body_bytes,) = struct.unpack_from("<q", metadata, at) if at else (0,)
    if body_bytes < 0:
        raise ValueError("a body of less than nothing")
    return Announced(rows, values_most, sizes_at, is_dictionary, body_bytes)


def _held(metadata: bytes, batch: int) -> list[int]:
    """Where the buffers that hold something begin."""
    buffers = _field(metadata, batch, _BUFFERS)
    if not buffers:
        return []
    start = _target(metadata, buffers)
    (number,) = struct.unpack_from("<I", metadata, start)
    pairs = np.frombuffer(metadata, "<i8", 2 * number, start + 4).reshape(-1, 2)
    starts: list[int] = pairs[pairs[:, 1] > 0, 0].tolist()
    return starts


def _field(metadata: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffers table is; 0 if it is not there."""
    (back,) = struct.unpack_from("<i", metadata, table)
    fields = table - back
    (size,) = struct.unpack_from("<H", metadata, fields)
    slot = 4 + 2 * number
    if fields < 0 or slot + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, fields + slot)
    return table + int(offset) if offset else 0


def _target(metadata: bytes, start: int) -> int:
    if not start:
        raise ValueError("a part of the message is missing")
    (offset,) = struct.unpack_from("<I", metadata, start)
    return start + int(offset)


def _wrong(payload: bytes, reason: str) -> SegmentError:
    return SegmentError(
        f"{len(payload)} bytes are not a batch of columns ({reason}); they were damaged on the way "
        "or come from another version of Onyx"
    )


def too_large(columns: Columns, row: int, bytes_max: int) -> SegmentError:
    """Why this row cannot travel: the key that takes most is named."""
    one = columns.slice(row, row + 1).record_batch
    sizes = [column.nbytes for column in one.columns]
    key = one.schema.names[int(np.argmax(sizes))]
    return SegmentError(
        f"segment {row} of the batch takes {sum(sizes)} bytes, of which key {key!r} takes "
        f"{max(sizes)}; at most {bytes_max} may travel: store large values elsewhere and send "
        "their address"
    )
