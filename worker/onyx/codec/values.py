"""Lists of plain values as bytes: what windows record of their state, whatever its shape.

The same msgpack as that of segments, and the same limits. As there, not every value is looked at
for types that would come back as another one (a set as a list, a date as text), but the first of
each kind: records of windows begin with what they say and of which window, and the states of one
window have one type, those of two windows of a task have not. Keys of dicts may be of any type
that can be one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        for value in _first_of_each_kind(values):
            examine(value, _KEYS)
        return _encoder.encode(values)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
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


def _first_of_each_kind(values: Sequence[Any]) -> Iterable[Any]:
    return {_kind(value): value for value in reversed(values)}.values()


def _kind(value: Any) -> Any:
    if type(value) is list and len(value) > 1 and type(value[0]) is type(value[1]) is str:
        return value[0], value[1]
    return type(value)


def _explain(values: Sequence[Any], error: Exception) -> SegmentError:
    """The error that names the window, if the value that cannot be written tells it."""
    for value in values:
        reason = _refusal(value)
        if reason:
            kind = _kind(value)
            window = f" of window {kind[1]}" if isinstance(kind, tuple) else ""
            return _error(window, reason)
    return _error("", str(error))


def _refusal(value: Any) -> str:
    try:
        examine(value, _KEYS)
        _encoder.encode(value)
    except OverflowError:
        return "an int beyond 64 bits"
    except (TypeError, ValueError, RecursionError) as error:
        return str(error)
    return ""


def _error(window: str, reason: str) -> SegmentError:
    return SegmentError(
        f"state{window} cannot be written: it holds {reason}; aggregations, triggers and group "
        "keys may have None, bool, int of 64 bits, float, str, bytes, a datetime with a time zone, "
        "and lists and dicts of these"
    )
