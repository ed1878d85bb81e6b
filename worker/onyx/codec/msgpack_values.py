"""How many values bytes of MessagePack hold, counted before any of them is made.

A byte may become a dict of 80 bytes. Rejected: a count of bytes that may begin a value, as JSON has
it: in MessagePack any byte of a text may be one.
"""

from __future__ import annotations

from collections.abc import Iterator


def _sizes() -> Iterator[int]:
    """For each first byte: how many bytes the value takes, without what is in it; negative: how
    many of them say its length."""
    fixed = {0xCA: 5, 0xCB: 9, 0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}
    fixed |= {0xCC + power: 1 + 2**power for power in range(4)}
    fixed |= {0xD0 + power: 1 + 2**power for power in range(4)}
    fixed |= {0xD4 + power: 2 + 2**power for power in range(5)}
    counted = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
    for first in range(256):
        if 0xA0 <= first <= 0xBF:
            yield 1 + (first & 0x1F)
        elif first in counted:
            yield -counted[first]
        else:
            yield fixed.get(first, 1)


_SIZES = tuple(_sizes())
_EXTENDED = (0xC7, 0xC8, 0xC9)
"""A byte for their type stands behind the length."""


def has_more_values(data: bytes, most: int) -> bool:
    """Whether bytes hold more keys and values than `most`. Of what is no MessagePack nothing is
    said."""
    if len(data) <= most:
        return False  # each takes a byte at least
    at = values = 0
    end = len(data)
    while at < end and values <= most:
        first = data[at]
        size = _SIZES[first]
        if size < 0:
            length = int.from_bytes(data[at + 1 : at + 1 - size], "big")
            size = 1 - size + length + (first in _EXTENDED)
        at += size
        values += 1
    return values > most
