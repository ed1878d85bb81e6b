"""Segments and their lineage as bytes: one msgpack array for a batch, raw columns beside it.

The whole list is encoded in one call (50 ns a segment; one call a segment costs four times that).
Arrow was rejected for lists of dicts: making the columns costs more than it saves on the wire.

`kinds` says what may travel. If a batch has values of types that msgpack lacks, these are put into
extensions first. Segments that cannot travel were refused when they were made (`refusals`);
encoding refuses them again for callers that bypass that check.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from gc import get_referents
from typing import Any

import msgspec
import numpy as np

from onyx.base.runs import Numbers, Run, array_of
from onyx.base.structs import UNREADABLE
from onyx.codec.kinds import TEXT, fits, is_native, levels, packed, unpacked
from onyx.codec.refusals import SEGMENT_BYTES_MAX, refusal
from onyx.errors import SegmentError
from onyx.flow.batch import Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns

COLUMN_VALUE_BYTES = 8
"""Bytes of one root or id."""
SAMPLED_SEGMENTS = 8
"""Segments of a batch, by which its size is estimated."""
STEP_MAX = 255
"""Largest difference of two neighbours that is one byte in a column of steps."""

_LOOKED_AT = 4_096
"""Values at the beginning of a long column, by which its form is guessed."""

_LITTLE_ENDIAN = np.dtype("<u8")
_VALUES_END = 1 << 64


_ARRAY, _ARRAY_32 = struct.Struct(">BI"), 0xDD
"""The header of a msgpack array of any length."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[dict[str, Any]], ext_hook=unpacked)
_WRONG = (TypeError, ValueError, OverflowError, RecursionError)


def encode(segments: Sequence[Segment], segment_bytes_max: int = SEGMENT_BYTES_MAX) -> bytes:
    """One msgpack array of all segments.

    Raises:
        SegmentError: a value cannot travel (its key and type are named), or the segments are
            larger than `segment_bytes_max` bytes on average, or nested too deeply.
    """
    try:
        payload = _encoder.encode(segments if _is_native(segments) else list(map(packed, segments)))
    except _WRONG as error:
        raise _explain(segments, error) from error
    if len(payload) > segment_bytes_max * max(1, len(segments)):
        raise _too_large(segments, segment_bytes_max)
    return payload


def encode_apart(segments: Sequence[Segment]) -> list[bytes]:
    """The bytes of each segment alone.

    Raises:
        SegmentError: a value cannot travel.
    """
    try:
        each = segments if _is_native(segments) else map(packed, segments)
        return list(map(_encoder.encode, each))
    except _WRONG as error:
        raise _explain(segments, error) from error


def decode_apart(payloads: Sequence[bytes]) -> list[Segment]:
    """The segments that `encode_apart` has had. Raises SegmentError: these are not their bytes."""
    return decode(b"".join([_ARRAY.pack(_ARRAY_32, len(payloads)), *payloads]))


def _is_native(segments: Sequence[Segment]) -> bool:
    """Whether msgpack has all types in these segments.

    Raises:
        TypeError: one of them cannot travel.
    """
    values = get_referents(*segments)
    # Of a dict whose keys may be no text, they are among these.
    text = len(values) == sum(map(len, segments))
    text = text or TEXT.issuperset(map(type, set().union(*segments)))
    found = list(levels(values))
    if not (text and all(map(fits, found))):
        raise TypeError("a type that cannot travel")
    return all(map(is_native, found))


def size_bytes(segments: Sequence[Segment]) -> int:
    """The size of all segments, encoded, about.

    Raises:
        SegmentError: as `encode`.
    """
    try:
        return len(_encoder.encode(segments))
    except _WRONG as error:
        raise _explain(segments, error) from error


def bytes_each(segments: Segments) -> float:
    """Size of a segment of these, encoded, by a few of them; 0 if they cannot be encoded."""
    return format_of(segments).choose(_bytes_of_dict, _bytes_of_row)(segments)


def _bytes_of_row(columns: Columns) -> float:
    return columns.size_bytes / len(columns)


def _bytes_of_dict(segments: list[Segment]) -> float:
    some = segments[:: max(1, -(-len(segments) // SAMPLED_SEGMENTS))]
    try:
        return size_bytes(some) / len(some)
    except SegmentError:
        return 0.0


def decode(payload: bytes) -> list[Segment]:
    """The segments of `encode`.

    Raises:
        SegmentError: the bytes are not an array of dicts with string keys.
    """
    try:
        return _decoder.decode(payload)
    except (*UNREADABLE, OverflowError, MemoryError) as error:
        raise SegmentError(
            f"{len(payload)} bytes are not a batch of segments ({error}); they were damaged on "
            "the way or come from another version of Onyx"
        ) from error


def count(payload: bytes) -> int:
    """How many segments a payload claims to hold, from its header alone.

    Raises:
        SegmentError: the payload does not begin with an array.
    """
    first = payload[0] if payload else 0
    if 0x90 <= first <= 0x9F:
        return first & 0x0F
    if first == 0xDC and len(payload) >= 3:
        return int.from_bytes(payload[1:3], "big")
    if first == 0xDD and len(payload) >= 5:
        return int.from_bytes(payload[1:5], "big")
    raise SegmentError(f"{len(payload)} bytes are not a batch of segments: no array at the start")


def encode_column(column: Numbers | None) -> bytes:
    """Roots or ids in the shortest of three forms, distinguished by their size; nothing for a batch
    without lineage.

    A run of consecutive values, as those of an unfiltered batch are, is only its first one. Values
    that mostly rise by little, as after a filter, are the first one, a byte for each step to the
    next, and behind them the steps that are no byte (0 stands for those): from one partition to
    another. All others are 8 bytes each, little-endian.
    """
    if column is None:
        return b""
    if isinstance(column, Run) and len(column):
        return column.first.to_bytes(COLUMN_VALUE_BYTES, "little")
    column = array_of(column).astype(_LITTLE_ENDIAN, copy=False)
    if len(column) < 2:
        return column.tobytes()
    if len(column) > 2 * _LOOKED_AT:
        # Ids of a fan-out, which leap all the time, would be copied several times to see that.
        few = column[1:_LOOKED_AT] - column[: _LOOKED_AT - 1]
        if int(np.count_nonzero(few > STEP_MAX)) > len(few) // 2:
            return column.tobytes()
    steps = column[1:] - column[:-1]
    largest = steps.max()
    if largest == 1 and int(column[-1]) - int(column[0]) == len(steps):
        return column[:1].tobytes()
    leaps = steps[:0]
    if largest > STEP_MAX:
        far = steps > STEP_MAX
        if int(np.count_nonzero(far)) * COLUMN_VALUE_BYTES >= len(steps):
            return column.tobytes()
        leaps = steps[far]
        steps[far] = 0
    near = steps.astype(np.uint8).tobytes()
    if near.count(0) != len(leaps):
        return column.tobytes()
    return column[:1].tobytes() + near + leaps.tobytes()


def is_column(data: bytes, length: int) -> bool:
    """Whether `data` has the size of a column of `length` values."""
    size, steps_end = len(data), COLUMN_VALUE_BYTES + length - 1
    if size == length * COLUMN_VALUE_BYTES or size <= COLUMN_VALUE_BYTES:
        return size == length * COLUMN_VALUE_BYTES or (size == COLUMN_VALUE_BYTES and length > 1)
    leaps = data.count(0, COLUMN_VALUE_BYTES, steps_end)
    return size == steps_end + leaps * COLUMN_VALUE_BYTES


def decode_column(data: bytes, length: int) -> Numbers | None:
    """A column of `length` values, or None if there is none.

    Raises:
        SegmentError: `data` is neither empty nor of the size of a column, or a value of it would
            have more than 64 bits.
    """
    if not data:
        return None
    if not is_column(data, length):
        raise SegmentError(f"a column of {length} values has {len(data)} bytes")
    if len(data) == COLUMN_VALUE_BYTES:
        run = Run(int.from_bytes(data, "little"), length)
        if run.end > _VALUES_END:
            raise SegmentError(f"a column of {length} values begins at {run.first}")
        return run
    if len(data) == length * COLUMN_VALUE_BYTES:
        return np.frombuffer(data, _LITTLE_ENDIAN).astype(np.uint64)
    first = np.frombuffer(data, _LITTLE_ENDIAN, 1)
    steps_end = COLUMN_VALUE_BYTES + length - 1
    column = np.empty(length, dtype=np.uint64)
    column[:1] = first
    steps = column[1:]
    steps[:] = np.frombuffer(data, np.uint8, length - 1, COLUMN_VALUE_BYTES)
    if len(data) > steps_end:
        steps[steps == 0] = np.frombuffer(data, _LITTLE_ENDIAN, offset=steps_end)
    return np.add.accumulate(column, out=column)


def _explain(segments: Sequence[Segment], error: Exception) -> SegmentError:
    """The error that names the first key whose value cannot travel."""
    for number, segment in enumerate(segments):
        reason = refusal(segment)
        if reason is not None:
            return SegmentError(f"segment {number} of the batch: {reason}")
    return SegmentError(f"the batch cannot be encoded: {error}")


def _too_large(segments: Sequence[Segment], segment_bytes_max: int) -> SegmentError:
    sizes = [len(_encoder.encode(segment)) for segment in segments]
    number = int(np.argmax(sizes))
    keys = {key: len(_encoder.encode(value)) for key, value in segments[number].items()}
    largest = max(keys, key=lambda key: keys[key])
    return SegmentError(
        f"segment {number} of the batch takes {sizes[number]} bytes, of which key {largest!r} "
        f"takes {keys[largest]}; at most {segment_bytes_max} may travel: store large values "
        "elsewhere and send their address"
    )
