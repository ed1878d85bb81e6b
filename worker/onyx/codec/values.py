"""Lists of plain values as bytes: emissions, unique keys and spilled states, whatever their shape.

The same msgpack as that of segments, the same types and limits (`kinds`), and all values are
checked. Keys of dicts may be of any of these types, because only the aggregation that made a state
reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from onyx.base.structs import UNREADABLE
from onyx.codec.kinds import KINDS, fits, is_native, levels, packed, reason, unpacked
from onyx.errors import SegmentError

WRONG = (TypeError, ValueError, OverflowError, RecursionError)
"""What checking and encoding raise for values that have no encoding."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Any], ext_hook=unpacked)


def encode_values(values: Sequence[Any]) -> bytes:
    """One msgpack array.

    Raises:
        SegmentError: a value has no encoding, or is nested too deeply.
    """
    try:
        return _encoder.encode(values if all_native(values) else list(map(packed, values)))
    except WRONG as error:
        default = SegmentError(f"state cannot be written: {error}")
        raise unencodable(values, "") or default from error


def encode_each(lists: Sequence[Sequence[Any]]) -> list[bytes]:
    """What `encode_values` gives of each: together, because to look at few values takes about as
    long as to look at many. Raises as `encode_values`.
    """
    try:
        if all_native([value for each in lists for value in each]):
            return list(map(_encoder.encode, lists))
    except WRONG:
        pass
    return list(map(encode_values, lists))


def decode_values(data: bytes | memoryview) -> list[Any]:
    """The values of `encode_values`.

    Raises:
        SegmentError: the bytes are not an array of values.
    """
    try:
        return _decoder.decode(data)
    except (*UNREADABLE, OverflowError, MemoryError) as error:
        raise SegmentError(f"{len(data)} bytes are not a list of values ({error})") from error


def all_native(values: Sequence[Any]) -> bool:
    """Whether msgpack has all types that the values are of and hold; if not, they are `packed`.

    Raises:
        TypeError, RecursionError: a type has no encoding, or values are nested too deeply.
    """
    found = list(levels(values))
    if not all(fits(each, KINDS) for each in found):
        raise TypeError("a type that cannot be written")
    return all(map(is_native, found))


def unencodable(values: Iterable[Any], where: str) -> SegmentError | None:
    """The error that says which value has no encoding, and why; None if all have one.

    Args:
        where: follows "state" in the message.
    """
    for value in values:
        found = reason(value, KINDS)
        if found:
            return SegmentError(
                f"state{where} cannot be written: it holds {found}; aggregations, triggers and "
                "group keys may have what a segment may have"
            )
    return None
