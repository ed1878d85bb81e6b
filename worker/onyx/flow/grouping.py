"""Group keys: from a segment to the peer that has all segments of its group.

A key is hashed over canonical bytes, so that every process, version and machine agrees (`hash()`
changes with each process). What counts as one group:

* Numbers that Python calls equal are one group, whatever their types: `1`, `1.0` and
  `Decimal("1.00")`, `0.0` and `-0.0`. `0.1 + 0.2` and `0.3` are two, as they are in Python. NaN,
  which equals nothing, is refused.
* `1`, `True` and `"1"` are three groups, though Python says `1 == True`.
* A list and a tuple of the same items are one group, and so are dicts in any order of keys.
* Datetimes of the same instant are one group. Without a time zone they are refused, as in segments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from onyx.errors import UserError, describe
from onyx.flow.batch import U64, Indices, Segment
from onyx.flow.predicates import Resolve
from onyx.flow.segment_failure import Refusal
from onyx.model.job import CatalogEntry

KeyGetter = Callable[[Segment], Any]

SHARDS = 128
"""Key groups: parts of the groups of a task that stay together. A peer has whole shards, whose
state moves from peer to peer; so at most so many peers of a grouped task have anything to do."""
DEPTH_MAX = 16
EXPONENT_MAX = 400
"""Of a Decimal: farther out its fraction would take more memory than it is worth. Floats end before
that."""
_INFINITY = float("inf")
_PLAIN = frozenset({str, bool, bytes, type(None)})
"""Types of which every value has canonical bytes."""
MEMO_KEYS_MAX = 65_536
"""Hashes remembered for each kind of key; beyond it all are forgotten."""


def key_getter(entry: CatalogEntry, resolve: Resolve) -> KeyGetter | None:
    """How a task's group key is read from a segment; None when the task is not grouped.

    One key gives its value, a list of keys the part of the segment that has them, a function
    whatever it returns. A segment that lacks a key is refused, because one group of all that lack
    it is hardly what anybody means; with `onMissingKey: group` it is what it says: None, or without
    that key. An exception of a function is raised with its name, and that of the task: it is called
    where segments come from.
    """
    if entry.group_by_fn is not None:
        where = f"groupByFn {entry.group_by_fn} of task {entry.name}"
        return _naming_function(resolve(entry.group_by_fn), where)
    by = entry.group_by_key
    if by is None:
        return None
    if entry.on_missing_key == "group":
        if isinstance(by, tuple):
            return lambda segment: {key: segment[key] for key in by if key in segment}
        return lambda segment: segment.get(by)
    return ByKeys(by, entry.name) if isinstance(by, tuple) else ByKey(by, entry.name)


def _naming_function(function: KeyGetter, where: str) -> KeyGetter:
    def named(segment: Segment) -> Any:
        try:
            return function(segment)
        except BaseException as error:
            raise Refusal(f"{where} raised {describe(error)}") from error

    return named


@contextmanager
def naming(entry: CatalogEntry) -> Iterator[None]:
    """Raise the refusal of a key with the entry of the job that it comes from: often that is not
    the task that fails, but the one downstream."""
    try:
        yield
    except Refusal:
        raise
    except UserError as error:
        by = entry.group_by_fn
        what = f"groupByFn {by}" if by is not None else f"groupByKey {entry.group_by_key}"
        raise Refusal(f"{what} of task {entry.name}: {error}") from error


class ByKey:
    """The value of one key of a segment."""

    def __init__(self, key: str, task: str) -> None:
        self._key = key
        self._task = task

    def __call__(self, segment: Segment) -> Any:
        try:
            return segment[self._key]
        except KeyError:
            raise missing(self._task, self._key) from None

    def of_all(self, segments: Sequence[Segment]) -> list[Any]:
        """The same for many: a sixth of the time."""
        key = self._key
        try:
            return [segment[key] for segment in segments]
        except KeyError:
            raise missing(self._task, key) from None


class ByKeys:
    """The part of a segment that has several keys."""

    def __init__(self, keys: tuple[str, ...], task: str) -> None:
        self._keys = keys
        self._task = task

    def __call__(self, segment: Segment) -> dict[str, Any]:
        try:
            return {key: segment[key] for key in self._keys}
        except KeyError as error:
            raise missing(self._task, error.args[0]) from None


def missing(task: str, key: str) -> Refusal:
    """Why a segment without the key is refused."""
    return Refusal(
        f"groupByKey of task {task}: a segment has no key {key!r}, which is the groupByKey; drop "
        "such segments in the function before or with a flow condition, or give the task "
        "onMissingKey: group"
    )


def keys_of(getter: KeyGetter, segments: Sequence[Segment]) -> list[Any]:
    """The group key of each segment."""
    return getter.of_all(segments) if isinstance(getter, ByKey) else list(map(getter, segments))


def key_bytes(key: Any) -> bytes:
    """Canonical bytes of a group key: equal exactly when the keys are one group.

    Raises:
        UserError: the key is or holds NaN, or something that has no canonical form.
    """
    return _encode(key, 0)


def key_hash(key: Any) -> int:
    """Stable 64-bit hash of a group key."""
    return int.from_bytes(hashlib.blake2b(key_bytes(key), digest_size=8).digest(), "little")


def slots_of_shards(hashes: U64, n: int) -> Indices:
    """For each hash the one of `n` slots that has its shard."""
    return (hashes % np.uint64(SHARDS) % np.uint64(n)).astype(np.intp)


def shard_of(key: Any) -> int:
    """The shard of a group."""
    return key_hash(key) % SHARDS


class Grouping:
    """Hashes of the group keys of one task, remembered for keys that come again."""

    def __init__(self, getter: KeyGetter, entry: CatalogEntry) -> None:
        self._getter = getter
        self._entry = entry
        self._memos: dict[type, _Memo] = {str: _Memo(), int: _Memo(), float: _Memo()}

    def hashes_of(self, segments: Sequence[Segment]) -> U64:
        """One stable hash a segment.

        Raises:
            Refusal: a segment lacks its key, or one that nothing can be grouped by, or the user's
                `groupByFn` raises.
        """
        return self._hashes(keys_of(self._getter, segments))

    def _hashes(self, keys: Sequence[Any]) -> U64:
        kinds = set(map(type, keys))
        memo = self._memos.get(kinds.pop()) if len(kinds) == 1 else None
        hashed = key_hash if memo is None else memo.__getitem__
        with naming(self._entry):
            return np.fromiter(map(hashed, keys), np.uint64, len(keys))

    def check(self, segments: Sequence[Segment]) -> None:
        """Whether all of them have a group; raises as `hashes_of` does, which takes longer where
        nobody needs the hashes."""
        keys = keys_of(self._getter, segments)
        if not _PLAIN.issuperset(map(type, keys)):
            self._hashes(keys)

    def slots_of(self, segments: Sequence[Segment], n: int) -> Indices:
        """For each segment the one of `n` slots that has its group: that of its shard."""
        assert n > 0
        return slots_of_shards(self.hashes_of(segments), n)


class _Memo(dict[Any, int]):
    """Of keys of one exact type: `True` would find what `1` has left."""

    def __missing__(self, key: Any) -> int:
        if len(self) >= MEMO_KEYS_MAX:
            self.clear()
        result = self[key] = key_hash(key)
        return result


def _encode(key: Any, depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise UserError(f"a group key is nested deeper than {DEPTH_MAX}: group by part of it")
    if key is None:
        return b"n"
    if key is True or key is False:
        return b"t" if key else b"f"
    if isinstance(key, int):
        return _integer(key)
    if isinstance(key, str):
        return _sized(b"s", key.encode("utf-8", "surrogatepass"))
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


def _integer(key: int) -> bytes:
    if not -(2**63) <= key < 2**64:
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
