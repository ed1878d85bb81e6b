"""Extents of windows as bytes: the answer to a query about a running job.

One msgpack array with an array for each extent, so that the size is known while the answer grows
and it can stop at its limit. States have the types of `kinds`, as in the state log. A state that is
not in the log yet may hold other types, which msgspec converts to similar ones (a set to a list);
nothing is computed from an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onyx.codec.kinds import packed, unpacked
from onyx.errors import SegmentError
from onyx.windows.firing import ALL, Extent
from onyx.windows.groups import dump_key, group_value, hashable_key, load_key

_ARRAY_32 = b"\xdd"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[tuple[Any, Any, Any, Any]], ext_hook=unpacked)
_key_decoder = msgspec.msgpack.Decoder(tuple[Any], ext_hook=unpacked)
_FAULTS = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError, MemoryError)


def encode_extents(extents: Sequence[Extent], bytes_max: int) -> tuple[bytes, int]:
    """The first extents, as many as `bytes_max` takes, and how many these are.

    Raises:
        SegmentError: a state cannot travel, or the first one alone is too large.
    """
    rows: list[bytes] = []
    size = 0
    for extent in extents:
        row = _row(extent)
        size += len(row)
        if size > bytes_max:
            break
        rows.append(row)
    if extents and not rows:
        raise SegmentError(
            f"the state of group {extents[0].group!r} from {extents[0].lower} takes {size} bytes, "
            f"and at most {bytes_max} are sent at once; have a trigger write it instead"
        )
    return _ARRAY_32 + len(rows).to_bytes(4, "big") + b"".join(rows), len(rows)


def decode_extents(data: bytes) -> list[Extent]:
    """The extents of `encode_extents`.

    Raises:
        SegmentError: the bytes are something else.
    """
    try:
        return [
            Extent(group_value(load_key(group)), lower, upper, state)
            for group, lower, upper, state in _decoder.decode(data)
        ]
    except _FAULTS as error:
        raise SegmentError(f"{len(data)} bytes are not extents of a window: {error}") from error


def encode_key(key: Any) -> bytes:
    """The key of a group that is asked for; nothing for ALL.

    Raises:
        UserError: it is of a type that no group's key has.
    """
    return b"" if key is ALL else _encoder.encode([packed(dump_key(hashable_key(key)))])


def decode_key(data: bytes) -> Any:
    """The key of `encode_key`.

    Raises:
        SegmentError: the bytes are something else.
    """
    if not data:
        return ALL
    try:
        return group_value(load_key(_key_decoder.decode(data)[0]))
    except _FAULTS as error:
        raise SegmentError(f"{len(data)} bytes are not the key of a group: {error}") from error


def _row(extent: Extent) -> bytes:
    key = dump_key(hashable_key(extent.group))
    try:
        return _encoder.encode(packed([key, extent.lower, extent.upper, extent.state]))
    except _FAULTS as error:
        raise SegmentError(
            f"the state of group {extent.group!r} from {extent.lower} cannot be sent: {error}"
        ) from error
