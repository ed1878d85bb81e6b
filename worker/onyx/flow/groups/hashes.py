"""Hashes of ints and short text, which most group keys are: of one key, and of a column.

Both give the same, so a group has its shard whoever finds it. A column takes a few operations on
arrays and remembers nothing, however many keys there are. Mixed by splitmix64, text in words of
eight bytes. All other keys are hashed over their canonical bytes (`keys`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.flow.arrays import U64
from onyx.flow.columns.compute import pc

TEXT_BYTES_MAX = 64
"""Longer text is hashed by `bytes_hash`."""
_MASK: Final = 2**64 - 1
_INT, _BEYOND, _TEXT = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7
"""Factors of ints below and from 2**63, and of text."""
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 8


def bytes_hash(data: bytes) -> int:
    """The hash of anything else."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def int_hash(key: int) -> int:
    """The hash of an int of 64 bits, with a sign or without."""
    return _mix(key & _MASK ^ (_INT if key < 2**63 else _BEYOND))


def text_hash(data: bytes) -> int:
    """The hash of text in UTF-8."""
    if len(data) > TEXT_BYTES_MAX:
        return bytes_hash(data)
    found = len(data) ^ _TEXT
    for at in range(0, len(data), _WORD):
        found = (found ^ int.from_bytes(data[at : at + _WORD], "little")) * _MIX_1 & _MASK
        found ^= found >> 32
    return _mix(found)


def column_hashes(column: pa.Array) -> U64 | None:
    """The hashes of each value of a column; None: it has values that are hashed otherwise, or
    null."""
    if column.null_count:
        return None
    if kinds.is_integer(column.type):
        return _ints(column)
    if kinds.is_string(column.type) or kinds.is_large_string(column.type):
        return _texts(column)
    return None


def combined_hashes(columns: Sequence[pa.Array]) -> U64:
    """One hash a row of columns of ints or text without nulls. Of a single column of ints no two
    different ones have the same."""
    found = column_hashes(columns[0])
    assert found is not None, "ints or text, none null"
    for column in columns[1:]:
        more = column_hashes(column)
        assert more is not None, "ints or text, none null"
        found = _mixed(found * np.uint64(_INT) ^ more)
    return found


def _ints(column: pa.Array) -> U64:
    if kinds.is_uint64(column.type):
        keys = column.to_numpy()
        seeds = np.where(keys < np.uint64(2**63), np.uint64(_INT), np.uint64(_BEYOND))
        return _mixed(keys ^ seeds)
    keys = column.to_numpy().astype(np.int64, copy=False).view(np.uint64)
    return _mixed(keys ^ np.uint64(_INT))


def _texts(column: pa.Array) -> U64:
    lengths = pc.binary_length(column).to_numpy().astype(np.int64)
    wide = kinds.is_large_string(column.type)
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int64 if wide else np.int32)
    starts = starts[column.offset : column.offset + len(column)].astype(np.int64)
    found = lengths.astype(np.uint64) ^ np.uint64(_TEXT)
    short = lengths <= TEXT_BYTES_MAX
    longest = int(lengths[short].max(initial=0))
    if longest:
        words = _words(data)
        for at in range(0, longest, _WORD):
            rows = np.flatnonzero(short & (lengths > at))
            left = np.minimum(lengths[rows] - at, _WORD)
            word = words[starts[rows] + at] & _FIRST_BYTES[left]
            more = (found[rows] ^ word) * np.uint64(_MIX_1)
            found[rows] = more ^ more >> np.uint64(32)
    found = _mixed(found)
    for row in np.flatnonzero(~short).tolist():
        found[row] = bytes_hash(column[row].as_buffer().to_pybytes())
    return found


_FIRST_BYTES = np.array([2 ** (8 * many) - 1 for many in range(_WORD + 1)], np.uint64)


def _words(data: pa.Buffer) -> U64:
    """The eight bytes from each offset on; behind the end are zeros."""
    padded = np.zeros(data.size + _WORD, np.uint8)
    padded[: data.size] = np.frombuffer(data, np.uint8)
    return np.ndarray((data.size + 1,), "<u8", padded, strides=(1,))


def _mix(value: int) -> int:
    value = (value ^ value >> 30) * _MIX_1 & _MASK
    value = (value ^ value >> 27) * _MIX_2 & _MASK
    return value ^ value >> 31


def _mixed(values: U64) -> U64:
    values = (values ^ values >> np.uint64(30)) * np.uint64(_MIX_1)
    values = (values ^ values >> np.uint64(27)) * np.uint64(_MIX_2)
    return values ^ values >> np.uint64(31)
