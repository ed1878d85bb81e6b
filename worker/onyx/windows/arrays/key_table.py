"""Which row a group has, and the group of a row.

Ints and text, which most group keys are, lie in arrays (`IntValues`, `TextValues`, which know what
a key is), and a batch of different keys is looked up with some operations on arrays, by open
addressing with linear steps (Knuth, The Art of Computer Programming, volume 3, section 6.4,
algorithm L). Other keys are in a dict.

A group keeps its row as long as there is the table: whoever removes groups marks their rows.

Rejected: a dict for all keys, which takes 100 bytes and more a group and makes a Python value of
each; Arrow's `index_in`, which makes a table of all groups anew for each batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.flow.batch import U64, Indices, Mask
from onyx.flow.columns.compute import pc
from onyx.flow.columns.values import python_values
from onyx.flow.groups.keys import column_hashes
from onyx.keystate.coded import Groups
from onyx.keystate.groups import dump_keys, load_keys
from onyx.windows.arrays.growing import Growing

_SLOTS_MIN = 64
_FULL = 0.5
"""The share of slots that may be taken: beyond it a search takes many steps."""
_GROWTH = 4
"""To find new slots for all keys takes as long as to put them in: so it is done rarely."""
_AT_ONCE = 1_048_576
"""Rows that get slots at once: arrays of so many numbers are small beside those of all rows."""
_HASH_BITS = 64
_NONE = -1


_INT64_MAX = 2**63 - 1


class KeyTable(Protocol):
    """The groups of the rows, each once."""

    @property
    def kind(self) -> str:
        """How `packed` stores groups."""
        ...

    def __len__(self) -> int: ...

    def add(self, groups: Groups) -> Indices | None:
        """The row of each of these different groups; those that are new get the next rows. None:
        the table cannot hold one of them, and nothing has changed."""
        ...

    def append(self, groups: Groups) -> bool:
        """Give the next rows to different groups that have none; False: as None of `add`."""
        ...

    def find(self, groups: Groups) -> Indices:
        """The row of each of these groups; -1: it has none."""
        ...

    def row(self, key: Any) -> int:
        """The row of a group; -1: it has none."""
        ...

    def keys(self, rows: Indices) -> list[Any]:
        """The groups of rows, as Python has them."""
        ...

    def column(self, rows: Indices) -> pa.Array | None:
        """The groups of rows as a column; None: they are not of one type."""
        ...

    def packed(self, rows: Indices, parts: Sequence[slice]) -> Sequence[Sequence[Any]]:
        """The groups of each part of some rows, to be stored."""
        ...


def table_for(groups: Groups) -> KeyTable:
    """An empty table, for groups like these."""
    values = groups.keys if groups.column is None else groups.column
    kinds: tuple[type[IntValues] | type[TextValues], ...] = (IntValues, TextValues)
    for kind in kinds:
        if kind.of(values) is not None:
            return HashedKeys(kind())
    return AnyKeys()


def unpacked(kind: str, packed: Sequence[Any]) -> Groups:
    """Different groups from what `KeyTable.packed` gave of a part, with a row each."""
    if kind == AnyKeys.kind:
        return Groups.each(list(load_keys(packed)))
    column = (IntValues if kind == IntValues.kind else TextValues).unpacked(packed)
    return Groups(np.arange(len(column)), None, column)


class HashedKeys:
    """Keys of one type."""

    def __init__(self, values: IntValues | TextValues) -> None:
        self._values = values
        self._many = 0
        self._slots = np.full(_SLOTS_MIN, _NONE, np.int32)
        """Where the search for a key begins follows from its hash; each has a row or none."""
        self._with_slot = 0
        """How many rows have a slot; the others, behind them, get theirs with the next search."""

    @property
    def kind(self) -> str:
        """That of the keys."""
        return self._values.kind

    def __len__(self) -> int:
        return self._many

    def add(self, groups: Groups) -> Indices | None:
        """The row of each group, a new one if need be."""
        column = self._values.of(groups.keys if groups.column is None else groups.column)
        if column is None:
            return None
        hashes = _hashes(column)
        rows = self._find(column, hashes)
        news = np.flatnonzero(rows == _NONE)
        if len(news):
            rows[news] = np.arange(self._many, self._many + len(news))
            whole = len(news) == len(column)
            self._values.add(column if whole else column.take(pa.array(news)), hashes[news])
            self._many += len(news)
        return rows

    def append(self, groups: Groups) -> bool:
        """Give new rows to groups, without a search."""
        column = self._values.of(groups.keys if groups.column is None else groups.column)
        if column is None:
            return False
        self._values.add(column, _hashes(column))
        self._many += len(column)
        return True

    def find(self, groups: Groups) -> Indices:
        """The row of each group, or -1; groups of different types are looked for one by one."""
        column = self._values.of(groups.keys if groups.column is None else groups.column)
        if column is None:
            return np.fromiter(map(self.row, groups.keys), np.intp, groups.many)
        return self._find(column, _hashes(column))

    def row(self, key: Any) -> int:
        """The row of one group: slow, for those who look at single ones."""
        column = self._values.of([key])
        return _NONE if column is None else int(self._find(column, _hashes(column))[0])

    def keys(self, rows: Indices) -> list[Any]:
        """The groups of rows, as Python has them."""
        return python_values(self.column(rows))

    def column(self, rows: Indices) -> pa.Array:
        """The groups of rows."""
        return self._values.column(rows)

    def packed(self, rows: Indices, parts: Sequence[slice]) -> Sequence[Sequence[Any]]:
        """The groups of each part of some rows, in bytes."""
        return self._values.packed(rows, parts)

    def _find(self, column: pa.Array, hashes: U64) -> Indices:
        """For each key its row, or -1."""
        self._give_slots()
        where = self._where(hashes)
        rows = np.full(len(column), _NONE, np.intp)
        left = np.arange(len(column))
        while len(left):
            self._search(column, hashes, left, where, rows)
            found = np.flatnonzero(rows[left] != _NONE)
            there = column if len(found) == len(column) else column.take(pa.array(left[found]))
            left = left[found[self._values.different(rows[left[found]], there)]]
            # The search goes on behind a row that was only alike.
            rows[left], where[left] = _NONE, (where[left] + 1) & (len(self._slots) - 1)
        return rows

    def _search(
        self, column: pa.Array, hashes: U64, left: Indices, where: Indices, rows: Indices
    ) -> None:
        """Find for the keys `left`, from `where` on, the first rows that are alike; `where` is
        then that of the row."""
        mask = len(self._slots) - 1
        while len(left):
            found = self._slots[where[left]]
            there = found != _NONE
            left, found = left[there], found[there]
            same = self._values.alike(found, column, hashes, left)
            rows[left[same]] = found[same]
            left = left[~same]
            where[left] = (where[left] + 1) & mask

    def _where(self, hashes: U64) -> Indices:
        """The slots where searches begin. The first bits say it: the last ones say the shard, and a
        peer that has few shards would use few slots."""
        bits = len(self._slots).bit_length() - 1
        return (hashes >> np.uint64(_HASH_BITS - bits)).astype(np.intp)

    def _give_slots(self) -> None:
        """Rows that have no slot get one, and all rows where slots become too few."""
        if self._with_slot == self._many:
            return
        size = len(self._slots)
        while self._many > _FULL * size:
            size *= _GROWTH
        if size > len(self._slots):
            self._slots = np.full(size, _NONE, np.int32)
            self._with_slot = 0
        for begin in range(self._with_slot, self._many, _AT_ONCE):
            part = slice(begin, min(begin + _AT_ONCE, self._many))
            self._put(self._values.hashes(part), np.arange(part.start, part.stop))
        self._with_slot = self._many

    def _put(self, hashes: U64, rows: Indices) -> None:
        """Put rows whose keys are in no slot, and different from each other."""
        mask = len(self._slots) - 1
        where = self._where(hashes)
        while len(rows):
            free = self._slots[where] == _NONE
            self._slots[where[free]] = rows[free]
            # Of several rows that want one slot the last has got it; the others go on.
            left = self._slots[where] != rows
            where, rows = (where[left] + 1) & mask, rows[left]


class AnyKeys:
    """Keys of any type, as `groups.hashable_key` makes them."""

    kind = "any"

    def __init__(self) -> None:
        self._rows: dict[Any, int] = {}
        self._keys: list[Any] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, groups: Groups) -> Indices:
        """The row of each group, a new one if need be."""
        rows = self._rows
        for key in groups.keys:
            if key not in rows:
                rows[key] = len(rows)
                self._keys.append(key)
        return np.fromiter(map(rows.__getitem__, groups.keys), np.intp, len(groups.keys))

    def append(self, groups: Groups) -> bool:
        """Give new rows to groups."""
        self.add(groups)
        return True

    def find(self, groups: Groups) -> Indices:
        """The row of each group, or -1."""
        return np.fromiter(map(self.row, groups.keys), np.intp, groups.many)

    def row(self, key: Any) -> int:
        """The row of a group; -1: it has none."""
        return self._rows.get(key, _NONE)

    def keys(self, rows: Indices) -> list[Any]:
        """The groups of rows."""
        return list(map(self._keys.__getitem__, rows.tolist()))

    def column(self, rows: Indices) -> None:
        """They may be of several types."""

    def packed(self, rows: Indices, parts: Sequence[slice]) -> Sequence[Sequence[Any]]:
        """The groups of each part of some rows, as plain data."""
        keys = dump_keys(self.keys(rows))
        return [keys[part] for part in parts]


def _hashes(column: pa.Array) -> U64:
    found = column_hashes(column)
    assert found is not None, "ints and text have hashes"
    return found


class IntValues:
    """Ints of 64 bits with a sign."""

    kind = "ints"

    def __init__(self) -> None:
        self._values = Growing(np.int64)

    @staticmethod
    def of(values: Sequence[Any] | pa.Array) -> pa.Array | None:
        """Keys as a column of int64, or None."""
        if not isinstance(values, pa.Array):
            if set(map(type, values)) != {int}:
                return None
            try:
                return pa.array(values, pa.int64())
            except (pa.ArrowInvalid, OverflowError):
                return None
        if not kinds.is_integer(values.type):
            return None
        if kinds.is_uint64(values.type) and len(values) and pc.max(values).as_py() > _INT64_MAX:
            return None
        return values.cast(pa.int64())

    def add(self, column: pa.Array, hashes: U64) -> None:
        """The keys of the next rows."""
        self._values.add(column.to_numpy())

    def alike(self, rows: Indices, column: pa.Array, hashes: U64, chosen: Indices) -> Mask:
        """Whether the key of each of these rows may be the one of the column with the index beside
        it: certainly if it is the same, and rarely otherwise."""
        same: Mask = self._values.all[rows] == column.to_numpy()[chosen]
        return same

    def different(self, rows: Indices, column: pa.Array) -> Indices:
        """The indices of keys that are not those of the rows beside them, although `alike`: none,
        ints that are alike are the same."""
        return np.empty(0, np.intp)

    def hashes(self, rows: slice) -> U64:
        """The hashes of some rows, which are not kept: they are made as fast as they are read."""
        found = column_hashes(pa.array(self._values.all[rows]))
        assert found is not None, "ints have hashes"
        return found

    def column(self, rows: Indices) -> pa.Array:
        """The keys of some rows."""
        return pa.array(self._values.all[rows])

    def packed(self, rows: Indices, parts: Sequence[slice]) -> list[list[bytes]]:
        """The keys of each part of some rows, to be stored."""
        return self.pack(self.column(rows), parts)

    @staticmethod
    def pack(column: pa.Array, parts: Sequence[slice]) -> list[list[bytes]]:
        """Each part of a column of keys, to be stored: eight bytes each."""
        values = column.to_numpy().astype("<i8", copy=False)
        return [[values[part].tobytes()] for part in parts]

    @staticmethod
    def unpacked(packed: Sequence[bytes]) -> pa.Array:
        """What `pack` gave, as a column."""
        return pa.array(np.frombuffer(packed[0], "<i8"))


class TextValues:
    """Text in UTF-8, end to end."""

    kind = "text"

    def __init__(self) -> None:
        self._data = Growing(np.uint8)
        self._ends = Growing(np.int64)
        self._ends.add_same(0, 1)
        self._hashes = Growing(np.uint64)

    @staticmethod
    def of(values: Sequence[Any] | pa.Array) -> pa.Array | None:
        """Keys as a column of large strings, or None."""
        if isinstance(values, pa.Array):
            if kinds.is_string(values.type):
                return values.cast(pa.large_string())
            return values if kinds.is_large_string(values.type) else None
        if set(map(type, values)) != {str}:
            return None
        try:
            return pa.array(values, pa.large_string())
        except (UnicodeEncodeError, pa.ArrowInvalid):
            return None

    def add(self, column: pa.Array, hashes: U64) -> None:
        """The keys of the next rows."""
        ends, data = _parts(column)
        self._ends.add(ends[1:] + (self._ends.all[-1] - ends[0]))
        self._data.add(data[ends[0] : ends[-1]])
        self._hashes.add(hashes)

    def alike(self, rows: Indices, column: pa.Array, hashes: U64, chosen: Indices) -> Mask:
        """Whether the hashes are the same."""
        same: Mask = self._hashes.all[rows] == hashes[chosen]
        return same

    def different(self, rows: Indices, column: pa.Array) -> Indices:
        """The indices of texts that have the hash of another one. Text is compared here alone, once
        for all, because its hash is 64 bits long and that rarely happens."""
        unequal = pc.not_equal(self.column(rows), column)
        return np.flatnonzero(unequal.to_numpy(zero_copy_only=False))

    def hashes(self, rows: slice) -> U64:
        """The hashes of some rows."""
        return self._hashes.all[rows]

    def column(self, rows: Indices) -> pa.Array:
        """The keys of some rows."""
        return _text(self._ends.all, self._data.all).take(pa.array(rows))

    def packed(self, rows: Indices, parts: Sequence[slice]) -> list[list[bytes]]:
        """The keys of each part of some rows, to be stored."""
        return self.pack(self.column(rows), parts)

    @staticmethod
    def pack(column: pa.Array, parts: Sequence[slice]) -> list[list[bytes]]:
        """Each part of a column of keys, to be stored: the lengths, four bytes each, and the text
        end to end."""
        ends, data = _parts(column)
        lengths = np.diff(ends).astype("<u4")
        return [
            [lengths[part].tobytes(), data[ends[part.start] : ends[part.stop]].tobytes()]
            for part in parts
        ]

    @staticmethod
    def unpacked(packed: Sequence[bytes]) -> pa.Array:
        """What `pack` gave, as a column."""
        ends = np.cumsum(np.frombuffer(b"\0\0\0\0" + packed[0], "<u4"), dtype=np.int64)
        return _text(ends, np.frombuffer(packed[1], np.uint8))


def _text(ends: np.ndarray[Any, np.dtype[np.int64]], data: np.ndarray[Any, Any]) -> pa.Array:
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers)


def _parts(column: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, Any]]:
    """Where each text of large strings ends in the bytes of all, after where the first begins."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    bytes_ = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return ends, bytes_
