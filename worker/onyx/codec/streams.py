"""Streams of Arrow from strangers, of which few bytes must not become many.

Who writes a message of a queue may compress it, and may say a value once in a dictionary and name
it a million times. So there is one bound on what comes out of one stream. It is checked before
memory is taken: on what each message announces (`columns.announced`: Arrow takes no more for a
compressed buffer than its size says), and on what the dictionaries, runs and views of a batch
become when they are spelled out, as columns are in a segment.

A batch is made into columns before the next is read: a dictionary that grows with each batch would
otherwise be kept as often as there are batches.

Rejected: to refuse compression and dictionaries, as requests do. Their writers use the clients of
Onyx; those of queues use any, and pandas and Spark make dictionaries.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from onyx.codec.columns import DAMAGED, ROWS_MAX, announced
from onyx.errors import SegmentError, UserError
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Columns, join, of_table

EXPANSION_MAX = 64
"""How many times its bytes a stream may become."""
SMALL_BYTES = 1_048_576
"""The size that every stream may become, however short it is."""
EXPANDED_BYTES_MAX = 268_435_456
"""The size that no compressed stream, and no dictionary in one, goes beyond."""

_WRONG = (pa.ArrowException, OSError, EOFError, ValueError, TypeError, UserError, MemoryError)
_SIZE = struct.Struct("<i")
_CONTINUATION = -1
Sizes = NDArray[np.int64]


def read_stream(data: bytes) -> Columns:
    """The rows of a stream.

    Raises:
        SegmentError: the bytes are no stream, its columns cannot be in segments, or it would become
            too large.
    """
    try:
        bound = _Bound(len(data))
        schema = _check_announced(data, bound)
        with pa.ipc.open_stream(data) as stream:
            repeats = _repeats_any(schema, stream.schema)
            parts = [_columns(batch, bound, repeats) for batch in stream]
            return join(parts) if parts else of_table(stream.schema.empty_table())
    except SegmentError:
        raise
    except (*_WRONG, *DAMAGED) as error:
        raise SegmentError(str(error)) from error


class _Bound:
    """What the parts of a stream may become together."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._most = max(size, min(max(SMALL_BYTES, EXPANSION_MAX * size), EXPANDED_BYTES_MAX))
        self._rows = 0
        self._expanded = 0

    def add_rows(self, rows: int) -> None:
        """Rows that values may take no bytes of."""
        self._rows += rows
        if self._rows > ROWS_MAX:
            raise SegmentError(
                f"it has {self._rows:,} rows or more; at most {ROWS_MAX:,} may be in one message"
            )

    def add(self, expanded: int) -> None:
        """What a part becomes."""
        self._expanded += expanded
        if self._expanded > self._most:
            raise SegmentError(
                f"its {self._size:,} bytes become {self._expanded:,} or more when decompressed "
                f"and spelled out; {self._most:,} are allowed: {SMALL_BYTES:,}, "
                f"or {EXPANSION_MAX} times its bytes up to {EXPANDED_BYTES_MAX:,}; its writer can "
                "put fewer rows into one message"
            )


def _check_announced(data: bytes, bound: _Bound) -> bytes:
    """Look at each message, without making anything of its body. Gives the schema's metadata."""
    schema, start = _metadata(data, 0)
    while start < len(data):
        metadata, body = _metadata(data, start)
        if not metadata:
            break
        said = announced(metadata)
        if body + said.body_bytes > len(data):
            raise ValueError("it is cut short")
        sizes = 0
        if said.sizes_at is not None:
            sizes = sum(_size_at(data, body + each) for each in said.sizes_at)
            bound.add(sizes)
        if not said.fits(max(said.body_bytes, sizes)):
            raise SegmentError(
                f"it claims {said.rows:,} rows, and {said.values_most:,} values in one column"
            )
        if not said.is_dictionary:
            bound.add_rows(said.rows)
        start = body + said.body_bytes
    return schema


def _metadata(data: bytes, start: int) -> tuple[bytes, int]:
    """The metadata of the message that begins there, and where its body does; empty at the end."""
    (size,) = _SIZE.unpack_from(data, start)
    start += 4
    if size == _CONTINUATION:  # old writers leave it out
        (size,) = _SIZE.unpack_from(data, start)
        start += 4
    if size < 0 or start + size > len(data):
        raise ValueError("it is cut short")
    return data[start : start + size], start + size


def _size_at(data: bytes, start: int) -> int:
    """The size of a buffer before it was compressed; it stands before the bytes, and is -1 for one
    that is not compressed."""
    (size,) = struct.unpack_from("<q", data, start)
    return max(0, int(size))


def _columns(batch: pa.RecordBatch, bound: _Bound, repeats: bool) -> Columns:
    batch.validate(full=True)  # the offsets of a damaged message lead anywhere
    if repeats:
        large = [column for column in batch.columns if _repeats(column.type)]
        bound.add(int(sum(_sizes(column).sum() for column in large)))
    return Columns.of(batch)


_KNOWN_MAX = 64
_known: dict[bytes, bool] = {}
"""Whether the columns of a schema may repeat values, by its metadata: types are dear to ask."""


def _repeats_any(metadata: bytes, schema: pa.Schema) -> bool:
    found = _known.get(metadata)
    if found is None:
        found = any(_repeats(each.type) for each in schema)
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[metadata] = found
    return found


def _repeats(kind: pa.DataType) -> bool:
    """Whether columns of a type may hold a value once that several rows have."""
    if isinstance(kind, pa.BaseExtensionType):
        return _repeats(kind.storage_type)
    if (
        kinds.is_dictionary(kind)
        or kinds.is_run_end_encoded(kind)
        or kinds.is_string_view(kind)
        or kinds.is_binary_view(kind)
        or kinds.is_list_view(kind)
        or kinds.is_large_list_view(kind)
    ):
        return True
    return kinds.is_nested(kind) and any(
        _repeats(kind.field(at).type) for at in range(kind.num_fields)
    )


def _sizes(column: pa.Array) -> Sizes:
    """The size of each row, spelled out; one byte at least, which is more than a null takes."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _sizes(column.storage)
    if kinds.is_dictionary(kind):
        sizes, found = _sizes(column.dictionary), column.indices.fill_null(0).to_numpy()
        return sizes[found.astype(np.int64)] if len(sizes) else np.ones(len(column), np.int64)
    if kinds.is_run_end_encoded(kind):
        ends = np.asarray(column.run_ends).astype(np.int64) - column.offset
        within = np.clip(ends, 0, len(column))
        return np.repeat(_sizes(column.values), np.diff(within, prepend=0))
    if kinds.is_string_view(kind) or kinds.is_binary_view(kind):
        return _of_views(column)
    if kinds.is_struct(kind):
        fields = (_sizes(each) for each in column.flatten())
        return sum(fields, np.ones(len(column), np.int64))
    if kinds.is_map(kind):
        offsets = np.asarray(column.offsets).astype(np.int64)
        return _between(_sizes(column.keys) + _sizes(column.items), offsets[:-1], offsets[1:])
    if kinds.is_list_view(kind) or kinds.is_large_list_view(kind):
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        lengths = np.where(valid, np.asarray(column.sizes), 0).astype(np.int64)
        first = np.where(valid, np.asarray(column.offsets), 0).astype(np.int64)
        return _between(_sizes(column.values), first, first + lengths)
    if kinds.is_nested(kind):
        return _of_lists(column)
    if _is_text(kind):
        return np.asarray(pc.binary_length(column).fill_null(0)).astype(np.int64) + 1
    width = 1 if kinds.is_null(kind) else max(1, kind.bit_width // 8)
    return np.full(len(column), width, np.int64)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_string(kind)
        or kinds.is_binary(kind)
        or kinds.is_large_string(kind)
        or kinds.is_large_binary(kind)
    )


def _of_views(column: pa.Array) -> Sizes:
    """The sizes of text that is elsewhere: a view is four numbers, of which one is a length."""
    views = np.frombuffer(column.buffers()[1], np.int32)
    lengths = views[4 * column.offset : 4 * (column.offset + len(column)) : 4]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(valid, lengths, 0).astype(np.int64) + 1


def _of_lists(column: pa.Array) -> Sizes:
    lengths = np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)
    ends = np.cumsum(lengths)
    return _between(_sizes(column.flatten()), ends - lengths, ends)


def _between(sizes: Sizes, first: Sizes, last: Sizes) -> Sizes:
    total = np.concatenate([[0], np.cumsum(sizes)])
    spelled: Sizes = total[last] - total[first] + 1
    return spelled
