"""Groups that are asked for and their states, as bytes: msgpack arrays of so many values as fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onyx.codec.values import encode_each

_ARRAY_32 = b"\xdd"


def first_fitting(lists: Sequence[Sequence[Any]], bytes_max: int) -> tuple[bytes, int]:
    """The first lists as an array of arrays, and how many these are: at least one, if there is one,
    and else as many as `bytes_max` takes.

    Raises:
        SegmentError: a value has no encoding.
    """
    rows: list[bytes] = []
    size = 0
    for row in encode_each(lists):
        size += len(row)
        if rows and size > bytes_max:
            break
        rows.append(row)
    return _ARRAY_32 + len(rows).to_bytes(4, "big") + b"".join(rows), len(rows)


def pieces(lists: Sequence[Sequence[Any]], bytes_max: int) -> Iterator[tuple[int, bytes]]:
    """All lists in pieces, each with how many it has. Raises as `first_fitting`."""
    while lists:
        data, count = first_fitting(lists, bytes_max)
        yield count, data
        lists = lists[count:]
