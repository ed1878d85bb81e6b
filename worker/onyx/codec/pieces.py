"""Columns in many small pieces: the rows of a record batch as bytes that can be put end to end.

A state log gets a few rows of each of 128 shards with every chunk. An Arrow message for each would
have some 300 bytes of its own and take 20 us to read. Here a piece is a list of buffers without any
header: the buffers of many pieces, each kind end to end, are those of all their rows. So a thousand
pieces of one row are read about as fast as one piece of a thousand rows.

What a column has, in this order:

| column of | buffers |
|---|---|
| any type | a byte a value: whether it is there |
| bool | a byte a value |
| numbers, dates, times, decimals | the values, as Arrow has them |
| string, binary | the lengths, four bytes each; what they are, end to end |
| list | the lengths, four bytes each; then the buffers of its items |
| struct | the buffers of its fields |

There are no checks of damage beside those of Arrow: whoever stores pieces has a checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import SegmentError

Piece = Sequence[bytes]
"""Buffers of some rows."""
_Cut = Callable[[int, int], list[bytes]]
"""Gives the buffers of the rows from one to before another."""
_LENGTHS = np.dtype("<u4")
_WRONG = (pa.ArrowException, ValueError, TypeError, IndexError, OverflowError, MemoryError)


def cutter(rows: pa.RecordBatch) -> Callable[[int, int], list[bytes]]:
    """What gives the piece with the rows from one to before another."""
    cuts = [_cut_of(column) for column in rows.columns]
    return lambda first, end: [buffer for cut in cuts for buffer in cut(first, end)]


def put_together(schema: pa.Schema, pieces: Sequence[Piece], count: int) -> pa.RecordBatch:
    """The rows of pieces, one piece after the other.

    Args:
        schema: of all of them.
        count: of all rows.

    Raises:
        SegmentError: the bytes are not pieces of this schema.
    """
    try:
        buffers = map(b"".join, zip(*pieces, strict=True))
        columns = [_array(field.type, buffers, count) for field in schema]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        rows.validate(full=True)
    except (*_WRONG, StopIteration) as error:
        raise SegmentError(
            f"{len(pieces)} pieces are not {count} rows of the columns {schema.names}: {error}"
        ) from error
    return rows


# --- to bytes -------------------------------------------------------------------------------------


def _cut_of(column: pa.Array) -> _Cut:
    there = column.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
    inner = _inner(column)
    return lambda first, end: [there[first:end].tobytes(), *inner(first, end)]


def _inner(column: pa.Array) -> _Cut:
    kind = column.type
    if kinds.is_null(kind):
        return lambda first, end: []
    if kinds.is_boolean(kind):
        values = column.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8)
        return lambda first, end: [values[first:end].tobytes()]
    if kinds.is_string(kind) or kinds.is_binary(kind):
        return _text(column)
    if kinds.is_list(kind):
        ends = column.offsets.to_numpy()
        lengths, items = _lengths(ends), _cut_of(column.values)
        return lambda first, end: [
            lengths[first:end].tobytes(), *items(int(ends[first]), int(ends[end])),
        ]  # fmt: skip
    if kinds.is_struct(kind):
        fields = [_cut_of(column.field(number)) for number in range(kind.num_fields)]
        return lambda first, end: [buffer for cut in fields for buffer in cut(first, end)]
    return _fixed(column)


def _text(column: pa.Array) -> _Cut:
    _, offsets, data = column.buffers()
    if not len(column) or offsets is None:
        return lambda first, end: [b"", b""]
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    lengths, bytes_ = _lengths(ends), memoryview(b"" if data is None else data)
    bounds = ends.tolist()
    return lambda first, end: [
        lengths[first:end].tobytes(), bytes(bytes_[bounds[first] : bounds[end]]),
    ]  # fmt: skip


def _fixed(column: pa.Array) -> _Cut:
    width = column.type.bit_width // 8
    data = column.buffers()[1]
    values = memoryview(bytes(width * len(column)) if data is None else data)
    start = 0 if data is None else column.offset
    return lambda first, end: [bytes(values[(start + first) * width : (start + end) * width])]


def _lengths(ends: Any) -> Any:
    return np.diff(ends).astype(_LENGTHS)


# --- from bytes -----------------------------------------------------------------------------------


def _array(kind: pa.DataType, buffers: Iterator[bytes], count: int) -> pa.Array:
    """A column of a type, of the buffers that come next."""
    there = np.frombuffer(next(buffers), np.bool_)
    _expect(len(there), count)
    valid = None if there.all() else _bits(there)
    if kinds.is_null(kind):
        return pa.nulls(count)
    if kinds.is_boolean(kind):
        values = np.frombuffer(next(buffers), np.bool_)
        _expect(len(values), count)
        return pa.Array.from_buffers(kind, count, [valid, _bits(values)])
    if kinds.is_string(kind) or kinds.is_binary(kind):
        ends = _ends(next(buffers), count)
        data = next(buffers)
        _expect(len(data), int(ends[-1]))
        return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(ends), pa.py_buffer(data)])
    if kinds.is_list(kind):
        ends = _ends(next(buffers), count)
        items = _array(kind.value_type, buffers, int(ends[-1]))
        return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(ends)], children=[items])
    if kinds.is_struct(kind):
        fields = [_array(each.type, buffers, count) for each in kind.fields]
        return pa.Array.from_buffers(kind, count, [valid], children=fields)
    data = next(buffers)
    _expect(len(data), count * (kind.bit_width // 8))
    return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(data)])


def _ends(lengths: bytes, count: int) -> Any:
    """Offsets of values, of their lengths."""
    found = np.zeros(count + 1, np.int64)
    np.cumsum(np.frombuffer(lengths, _LENGTHS), out=found[1:])
    if found[-1] >= 1 << 31:
        raise ValueError("they are more than a column can hold")
    return found.astype(np.int32)


def _bits(values: Any) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _expect(found: int, count: int) -> None:
    if found != count:
        raise ValueError(f"{found} where {count} were announced")
