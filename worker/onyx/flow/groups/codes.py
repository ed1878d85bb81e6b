"""The keys of a batch of columns: each different one once, and for each row which of them it has.

Whatever Python does with a key (hash it, look it up) it does once for each different key of a
batch, and `Remembered` once for each of a stream. Text, numbers and moments are found by Arrow's
dictionary encoding, several keys and structs by combining the codes of their parts; only lists are
looked at row by row.

Different is what Arrow calls different: `0.0` and `-0.0` may both be there, and are one group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.flow.batch import FoundKeys, Indices
from onyx.flow.columns.moments import is_utc
from onyx.flow.columns.record_batch import Columns
from onyx.flow.columns.values import python_values
from onyx.flow.groups.keys import PLAIN_KEYS, key_bytes

T = TypeVar("T")
KEYS_MAX = 65_536
"""Keys remembered of columns of one type; beyond it all are forgotten."""
KINDS_MAX = 16
"""Types of columns that keys are remembered of; beyond it all are forgotten."""
_TABLE_A_ROW = 8
"""A table of codes may have so many entries a row; beyond it codes are sorted."""


class KeyCodes(msgspec.Struct):
    """The keys of a batch."""

    codes: Indices
    """For each row the index of its key in `raws`."""
    _raws: list[Any] | None
    names: tuple[str, ...] | None = None
    """For a key that is a part of a segment: the keys of that part."""
    kind: Hashable = None
    """The kind of two batches of the same kind, equal `raws` are the same key; None: they are not
    hashable, or differ though Python says that they are equal."""
    column: pa.Array | None = None
    """The values as `raws`, of ints or text: who needs no more makes no Python values."""

    @property
    def raws(self) -> list[Any]:
        """Each different key, in order of its first row: a value, or a tuple by `names`."""
        if self._raws is None:
            assert self.column is not None, "one of the two"
            self._raws = python_values(self.column)
        return self._raws

    def __len__(self) -> int:
        """How many different keys there are."""
        return len(self.raws) if self.column is None else len(self.column)

    @staticmethod
    def of_values(values: list[Any]) -> KeyCodes:
        """The codes of one key a row, of any type."""
        return KeyCodes(np.arange(len(values)), values)

    @staticmethod
    def of_column(columns: Columns, key: str) -> KeyCodes:
        """The values of a column that there is."""
        column = columns.column(key)
        if _is_nested(column.type):
            codes, firsts = _codes(column)
            return KeyCodes(codes, python_values(column.take(pa.array(firsts))))
        encoded = column.dictionary_encode(null_encoding="encode")
        codes, different, kind = _array(encoded.indices), encoded.dictionary, _kind([column.type])
        if is_plain(different):
            return KeyCodes(codes, None, None, kind, different)
        return KeyCodes(codes, python_values(different), None, kind)

    @staticmethod
    def of_parts(columns: Columns, keys: Sequence[str]) -> KeyCodes:
        """The parts of segments that have some keys, of which there are columns."""
        each = [columns.column(key) for key in keys]
        codes, firsts = codes_of(each, len(columns))
        chosen = pa.array(firsts)
        values = [python_values(column.take(chosen)) for column in each]
        raws = list(zip(*values, strict=True)) if values else [()] * len(firsts)
        kind = _kind([column.type for column in each])
        return KeyCodes(codes, raws, tuple(keys), None if kind is None else (*keys, *kind))

    def take(self, chosen: Indices) -> KeyCodes:
        """The keys of some rows."""
        codes, olds, _ = compact(self.codes[chosen], len(self))
        if self.column is not None:
            return KeyCodes(codes, None, None, self.kind, self.column.take(pa.array(olds)))
        raws = [self.raws[old] for old in olds.tolist()]
        return KeyCodes(codes, raws, self.names, self.kind)

    def joined(self, others: Sequence[FoundKeys]) -> None:
        """These and those of others behind them; None: that takes longer than to find them anew.
        Arrow finds those of all faster than Python joins them."""

    def values(self) -> list[Any]:
        """Each different key as it is in a segment of dicts."""
        return list(map(self.value_of, self.raws))

    def value_of(self, raw: Any) -> Any:
        """One of them."""
        return raw if self.names is None else dict(zip(self.names, raw, strict=True))


class KeyList(msgspec.Struct, frozen=True):
    """The keys of a batch of dicts."""

    raws: list[Any]
    """One a segment: a value, or a tuple by `names`."""
    names: tuple[str, ...] | None = None
    """For a key that is a part of a segment: the keys of that part."""

    @property
    def kind(self) -> Hashable:
        """The kind of two batches of the same kind, equal `raws` are the same key; None: they are
        not hashable, or differ though Python says that they are equal."""
        if self.names is None:
            return None
        plain = PLAIN_KEYS.issuperset(map(type, chain.from_iterable(self.raws)))
        return self.names if plain else None

    def take(self, chosen: Indices) -> KeyList:
        """The keys of some segments."""
        raws = self.raws
        return KeyList([raws[index] for index in chosen.tolist()], self.names)

    def joined(self, others: Sequence[FoundKeys]) -> KeyList | None:
        """The keys and those of others behind them; None: that takes longer than to find them."""
        raws = list(self.raws)
        for each in others:
            if not isinstance(each, KeyList) or each.names != self.names:
                return None
            raws += each.raws
        return KeyList(raws, self.names)

    def values(self) -> list[Any]:
        """The key of each segment as it is in the segment."""
        return self.raws if self.names is None else list(map(self.value_of, self.raws))

    def value_of(self, raw: Any) -> Any:
        """One of them."""
        return raw if self.names is None else dict(zip(self.names, raw, strict=True))


class Remembered(Generic[T]):
    """What a function makes of the keys of a stream: called once for each, unless it raises."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        """`make` gets the key as it is in a segment of dicts."""
        self._make = make
        self._memos: dict[Hashable, _Memo[T]] = {}

    def of(self, keys: KeyCodes | KeyList) -> list[T]:
        """For each of the keys what is made of it. Raises what the function raises."""
        kind = keys.kind
        if kind is None:
            return list(map(self._make, keys.values()))
        memo = self._memos.get(kind)
        if memo is None:
            if len(self._memos) >= KINDS_MAX:
                self._memos.clear()
            memo = self._memos[kind] = _Memo(self._make, keys.value_of)
        return list(map(memo.__getitem__, keys.raws))


class _Memo(dict[Any, T]):
    def __init__(self, make: Callable[[Any], T], value_of: Callable[[Any], Any]) -> None:
        super().__init__()
        self._make = make
        self._value_of = value_of

    def __missing__(self, raw: Any) -> T:
        if len(self) >= KEYS_MAX:
            self.clear()
        made = self[raw] = self._make(self._value_of(raw))
        return made


def is_plain(column: pa.Array) -> bool:
    """Whether all are ints or text, of which no two are the same group."""
    kind = column.type
    text = kinds.is_string(kind) or kinds.is_large_string(kind)
    return not column.null_count and bool(text or kinds.is_integer(kind))


def compact(codes: Indices, size: int) -> tuple[Indices, Indices, Indices]:
    """Codes without gaps, in order of their first row.

    Args:
        size: all codes are below it.

    Returns:
        For each row its new code; for each new code the old one, and its first row.
    """
    many = len(codes)
    if size > _TABLE_A_ROW * (many + 1):
        olds, firsts, inverse = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        news = np.empty_like(order)
        news[order] = np.arange(len(order))
        return news[inverse], olds[order], firsts[order]
    firsts = np.full(size, many)
    firsts[codes[::-1]] = np.arange(many - 1, -1, -1)  # of one code the last assignment stays
    olds = np.flatnonzero(firsts < many)
    olds = olds[np.argsort(firsts[olds])]
    news = np.empty(size, np.intp)
    news[olds] = np.arange(len(olds))
    return news[codes], olds, firsts[olds]


def codes_of(columns: Sequence[pa.Array], many: int) -> tuple[Indices, Indices]:
    """For each of so many rows of columns a code, and for each code its first row."""
    return _combined(list(map(_codes, columns)), many)


def _codes(column: pa.Array) -> tuple[Indices, Indices]:
    """For each row a code, and for each code its first row."""
    if kinds.is_struct(column.type):
        parts = [_codes(each) for each in (column.is_null(), *column.flatten())]
        return _combined(parts, len(column))
    if _is_nested(column.type):
        found: dict[bytes, int] = {}
        values = map(key_bytes, python_values(column))
        codes = np.array([found.setdefault(value, len(found)) for value in values], np.intp)
        size = len(found)
    else:
        encoded = column.dictionary_encode(null_encoding="encode")
        codes, size = _array(encoded.indices), len(encoded.dictionary)
    codes, _, firsts = compact(codes, size)
    return codes, firsts


def _combined(parts: list[tuple[Indices, Indices]], many: int) -> tuple[Indices, Indices]:
    """The codes of rows that are equal in all parts."""
    codes, firsts = np.zeros(many, np.intp), np.zeros(min(many, 1), np.intp)
    for more, its_firsts in parts:
        size = len(its_firsts)
        codes, _, firsts = compact(codes * size + more, len(firsts) * size)
    return codes, firsts


def _array(indices: pa.Array) -> Indices:
    found: Indices = indices.to_numpy().astype(np.intp)
    return found


def _kind(types: Sequence[pa.DataType]) -> tuple[str, ...] | None:
    """The kind of keys with parts of these types (`KeyCodes.kind`). Where clocks go back, two
    moments an hour apart are equal for Python."""
    for each in types:
        if _is_nested(each) or (kinds.is_timestamp(each) and not is_utc(each)):
            return None
    return tuple(map(str, types))


def _is_nested(kind: pa.DataType) -> bool:
    return bool(kinds.is_struct(kind) or kinds.is_list(kind))
