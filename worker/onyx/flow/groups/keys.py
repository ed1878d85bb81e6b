"""Group keys: which are one group, and the peer that has all segments of a group.

How keys are read from segments is in `getters`. Every process, version and machine agrees on
the hash of a key (`hash()` changes with each process). It is that of canonical bytes; ints and text
have one that is found for whole columns at once. What counts as one group:

* Numbers that Python calls equal are one group, whatever their types: `1`, `1.0` and
  `Decimal("1.00")`, `0.0` and `-0.0`. `0.1 + 0.2` and `0.3` are two, as they are in Python. NaN,
  which equals nothing, is refused.
* `1`, `True` and `"1"` are three groups, though Python says `1 == True`.
* A list and a tuple of the same items are one group, and so are dicts in any order of keys.
* Datetimes of the same instant are one group. Without a time zone they are refused, as in segments.

Most group keys are ints and short text. Their hashes are the same for one key and for a column, so
a group has its shard whoever finds it. A column takes a few operations on arrays and remembers
nothing, however many keys there are. Mixed by splitmix64, text in words of eight bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import UserError
from onyx.flow.arrays import U64, Indices
from onyx.flow.columns.compute import pc

SHARDS = 128
"""Key groups: parts of the groups of a task that stay together. A peer has whole shards, whose
state moves from peer to peer; so at most so many peers of a grouped task have anything to do."""

PLAIN_KEYS = frozenset({str, int, bytes, type(None)})
"""Exact types of which no two keys of different groups are equal for Python."""

_SOUND = PLAIN_KEYS | {bool}
"""Types of which every value is a key, but for ints beyond 64 bits."""

DEPTH_MAX = 16

EXPONENT_MAX = 400
"""The exponent of a Decimal: farther out its fraction would take more memory than it is worth.
Floats end before that."""

_INFINITY = float("inf")

_INT_MIN = -(2**63)


def key_bytes(key: Any) -> bytes:
    """Canonical bytes of a group key: equal exactly when the keys are one group.

    Raises:
        UserError: the key is or holds NaN, or something that has no canonical form.
    """
    return _encode(key, 0)


def key_hash(key: Any) -> int:
    """Stable 64-bit hash of a group key. Raises as `key_bytes`."""
    if type(key) is str:
        return text_hash(_utf8(key))
    if type(key) is int and _INT_MIN <= key < 2**64:
        return int_hash(key)
    return encoded_hash(key_bytes(key))


def encoded_hash(data: bytes) -> int:
    """The hash of the group key that has these canonical bytes."""
    if data.startswith(b"i"):  # it equals an int
        return int_hash(int(data[1:-1]))
    if data.startswith(b"s"):
        return text_hash(data.partition(b":")[2])
    return bytes_hash(data)


def slots_of_shards(hashes: U64, n: int) -> Indices:
    """For each hash the one of `n` slots that has its shard."""
    return (hashes % np.uint64(SHARDS) % np.uint64(n)).astype(np.intp)


def shard_of(key: Any) -> int:
    """The shard of a group."""
    return key_hash(key) % SHARDS


def are_sound(values: Sequence[Any]) -> bool:
    """Whether nothing can be wrong with these keys, or parts of keys; False may be wrong."""
    kinds = set(map(type, values))
    if not kinds <= _SOUND:
        return False
    ints = [each for each in values if type(each) is int] if len(kinds) > 1 else values
    return int not in kinds or (min(ints) >= _INT_MIN and max(ints) < 2**64)


def _encode(key: Any, depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise UserError(f"a group key is nested deeper than {DEPTH_MAX}: group by part of it")
    kind = type(key)
    if kind is str:  # what is mostly asked for comes first
        return _sized(b"s", _utf8(key))
    if kind is int:
        return _integer(key)
    if key is None:
        return b"n"
    if key is True or key is False:
        return b"t" if key else b"f"
    if isinstance(key, int):
        return _integer(key)
    if isinstance(key, str):
        return _sized(b"s", _utf8(key))
    if isinstance(key, bytes):
        return _sized(b"b", key)
    if isinstance(key, list | tuple):
        return b"l%d:" % len(key) + b"".join(_encode(each, depth + 1) for each in key)
    if isinstance(key, dict):
        items = [_encode(k, depth + 1) + _encode(v, depth + 1) for k, v in key.items()]
        return b"d%d:" % len(items) + b"".join(sorted(items))
    if isinstance(key, float | Decimal):
        return _number(key)
    if isinstance(key, date):
        return _sized(b"D", _iso(key).encode())
    if isinstance(key, time) and key.tzinfo is None:
        return _sized(b"T", key.isoformat().encode())
    if isinstance(key, timedelta):
        return b"P%d;" % (key // timedelta(microseconds=1))
    raise UserError(_refusal(key))


def _utf8(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _integer(key: int) -> bytes:
    if not _INT_MIN <= key < 2**64:
        raise UserError("a group key is an int beyond 64 bits: make it a str")
    return b"i%d;" % key


def _number(key: float | Decimal) -> bytes:
    """Exactly what it is: floats and Decimals are equal where their fractions are."""
    if key != key:
        raise UserError(
            "a group key is NaN, which equals nothing, so that each would be a group of its own: "
            "replace it in the task before or with groupByFn"
        )
    if key in (_INFINITY, -_INFINITY):
        return b"q+;" if key > 0 else b"q-;"
    if isinstance(key, Decimal) and abs(key.adjusted()) > EXPONENT_MAX:
        raise UserError(f"a group key is a Decimal beyond 10**{EXPONENT_MAX}: make it a str")
    above, below = key.as_integer_ratio()
    if below == 1:
        return _integer(above) if -(2**63) <= above < 2**64 else b"q%x/1;" % above
    return b"q%x/%x;" % (above, below)


def _sized(tag: bytes, content: bytes) -> bytes:
    return tag + b"%d:" % len(content) + content


def _iso(key: date) -> str:
    if not isinstance(key, datetime):
        return key.isoformat()
    if key.tzinfo is None:
        raise UserError(
            "a group key is a datetime without a time zone: give it one, as in "
            "value.replace(tzinfo=datetime.UTC)"
        )
    return key.astimezone(UTC).isoformat()


def _refusal(key: Any) -> str:
    return (
        f"a group key is of type {type(key).__name__}, which cannot be grouped by: use str, int, "
        "float, Decimal, bool, bytes, date, time, timedelta, a datetime with a time zone, None, or "
        "lists and dicts of these"
    )


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
