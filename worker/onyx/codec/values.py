"""Lists of plain values as bytes: what windows record of their state, whatever its shape.

The same msgpack as that of segments, and the same limits. As there, only the first value is looked
at for types that would come back as another one (a set as a list, a date as text). Keys of dicts
may be of any type that can be one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onyx.codec.segments import SCALARS, examine, refuse_extension
from onyx.errors import SegmentError

_KEYS = (*SCALARS, tuple)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Any], ext_hook=refuse_extension)


def encode_values(values: Sequence[Any]) -> bytes:
    """One msgpack array.

    Raises:
        SegmentError: a value has no encoding, or is nested too deeply.
    """
    try:
        if values:
            examine(values[0], _KEYS)
        return _encoder.encode(values)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SegmentError(
            f"state cannot be written: it holds {error}; aggregations may keep None, bool, int of "
            "64 bits, float, str, bytes, a datetime with a time zone, and lists and dicts of these"
        ) from error


def decode_values(data: bytes | memoryview) -> list[Any]:
    """The values of `encode_values`.

    Raises:
        SegmentError: the bytes are not an array of values.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise SegmentError(f"{len(data)} bytes are not a list of values ({error})") from error
