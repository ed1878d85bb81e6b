"""The keys of rows in arrays, by their type: ints of 64 bits, and text. Both have the same methods,
which `key_table` calls: it knows where a key is looked for, and these know what a key is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.flow.batch import U64, Indices, Mask
from onyx.flow.columns.compute import pc
from onyx.flow.groups.keys import column_hashes
from onyx.windows.arrays.growing import Growing

_INT64_MAX = 2**63 - 1


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
