"""Lists of plain values as bytes: what windows record of their state, whatever its shape.

The same msgpack as that of segments, the same types and limits (`kinds`), and all values are looked
at. Keys of dicts may be of any of these types, because a state is not read by anybody but the
aggregation that made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onyx.codec.kinds import KINDS, fits, is_native, levels, packed, unpacked
from onyx.codec.refusals import reason
from onyx.errors import SegmentError

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Any], ext_hook=unpacked)
_WRONG = (TypeError, ValueError, OverflowError, RecursionError)


def encode_values(values: Sequence[Any]) -> bytes:
    """One msgpack array.

    Raises:
        SegmentError: a value has no encoding, or is nested too deeply.
    """
    try:
        found = list(levels(values))
        if not all(fits(each, KINDS) for each in found):
            raise TypeError("a type that cannot be written")
        return _encoder.encode(values if all(map(is_native, found)) else list(map(packed, values)))
    except _WRONG as error:
        raise _explain(values, error) from error


def decode_values(data: bytes | memoryview) -> list[Any]:
    """The values of `encode_values`.

    Raises:
        SegmentError: the bytes are not an array of values.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise SegmentError(f"{len(data)} bytes are not a list of values ({error})") from error


def _explain(values: Sequence[Any], error: Exception) -> SegmentError:
    """The error that names the window, if the value that cannot be written tells it."""
    for value in values:
        found = reason(value, KINDS)
        if found:
            is_record = type(value) is list and len(value) > 1 and type(value[1]) is str
            return _error(f" of window {value[1]}" if is_record else "", found)
    return _error("", str(error))


def _error(window: str, what: str) -> SegmentError:
    return SegmentError(
        f"state{window} cannot be written: it holds {what}; aggregations, triggers and group keys "
        "may have what a segment may have"
    )
