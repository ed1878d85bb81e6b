"""Group keys: which are one group, and the peer that has all segments of a group.

How keys are read from segments is in `getters`. Every process, version and machine agrees on
the hash of a key (`hash()` changes with each process). It is that of canonical bytes; ints and text
have one that is found for whole columns at once (`hashes`). What counts as one group:

* Numbers that Python calls equal are one group, whatever their types: `1`, `1.0` and
  `Decimal("1.00")`, `0.0` and `-0.0`. `0.1 + 0.2` and `0.3` are two, as they are in Python. NaN,
  which equals nothing, is refused.
* `1`, `True` and `"1"` are three groups, though Python says `1 == True`.
* A list and a tuple of the same items are one group, and so are dicts in any order of keys.
* Datetimes of the same instant are one group. Without a time zone they are refused, as in segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np

from onyx.errors import UserError
from onyx.flow.arrays import U64, Indices
from onyx.flow.groups.hashes import bytes_hash, int_hash, text_hash

SHARDS = 128
"""Key groups: parts of the groups of a task that stay together. A peer has whole shards, whose
state moves from peer to peer; so at most so many peers of a grouped task have anything to do."""
PLAIN_KEYS = frozenset({str, int, bytes, type(None)})
"""Exact types of which no two keys of different groups are equal for Python."""
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


def are_plain_parts(parts: Iterable[Sequence[Any]]) -> bool:
    """Whether nothing can be wrong with keys that have these parts; False may be wrong."""
    values = list(chain.from_iterable(parts))
    kinds = set(map(type, values))
    if not kinds <= PLAIN_KEYS:
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
