"""Rows with what they are found by, the hash of their key and their time, and their stored form.

Rows are put in order, chosen and merged by their numbers alone. The segments and keys lie as they
came, and are moved only to be put behind others, or when most of them are of no use any more.

Segments are stored as a record batch, whatever their format. Dicts are a column with the bytes of
each. They take less memory so, lie in files as columns do, and nobody who gets a result can change
what is stored.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.codec.segments import decode_apart, encode_apart
from onyx.flow.arrays import U64, Indices, Mask
from onyx.flow.batch import Segment, Segments, as_dicts, format_of
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.keys import combined_hashes
from onyx.operators.stream_join.spans import Times

_DICTS = pa.schema([("\0segment", pa.binary())])
"""No key of a segment is called so by chance."""


class KeyedRows(msgspec.Struct, frozen=True):
    """Rows of one side. None of the keys is null or has a part that is."""

    hashes: U64
    times: Times
    shards: Indices
    where: Indices
    """For each row where its key and its segment lie."""
    keys: tuple[pa.Array, ...]
    """A column for each part of the key, of ints or text (`joins.keys.apart`)."""
    segments: pa.RecordBatch
    """The segments, in the form in which they are stored."""

    @staticmethod
    def of(
        keys: Sequence[pa.Array], times: Times, shards: Indices, segments: pa.RecordBatch
    ) -> KeyedRows:
        """Rows with their hashes, where they lie."""
        where = np.arange(len(times))
        return KeyedRows(combined_hashes(keys), times, shards, where, tuple(keys), segments)

    def __len__(self) -> int:
        return len(self.times)

    def take(self, chosen: Indices) -> KeyedRows:
        """Some of them. No segment is moved."""
        return KeyedRows(
            self.hashes[chosen],
            self.times[chosen],
            self.shards[chosen],
            self.where[chosen],
            self.keys,
            self.segments,
        )

    def packed(self) -> KeyedRows:
        """These rows, with their segments in order and no others beside them."""
        where = pa.array(self.where)
        return KeyedRows(
            self.hashes,
            self.times,
            self.shards,
            np.arange(len(self)),
            tuple(each.take(where) for each in self.keys),
            self.segments.take(where),
        )

    @property
    def sparse(self) -> bool:
        """Whether most segments that lie here are those of other rows."""
        return 2 * len(self) < int(self.segments.num_rows)

    def chosen(self, rows: Indices) -> pa.RecordBatch:
        """The segments of some rows, which may repeat."""
        return self.segments.take(pa.array(self.where[rows]))

    @property
    def form(self) -> Hashable:
        """What rows have in common that can be put together."""
        return tuple(each.type for each in self.keys), self.segments.schema


def together(parts: Sequence[KeyedRows]) -> KeyedRows:
    """The rows of several of one form."""
    if len(parts) == 1:
        return parts[0]
    sizes = [each.segments.num_rows for each in parts]
    starts = np.cumsum([0, *sizes[:-1]])
    keys = zip(*(each.keys for each in parts), strict=True)
    return KeyedRows(
        np.concatenate([each.hashes for each in parts]),
        np.concatenate([each.times for each in parts]),
        np.concatenate([each.shards for each in parts]),
        np.concatenate([each.where + start for each, start in zip(parts, starts, strict=True)]),
        tuple(map(pa.concat_arrays, keys)),
        pa.concat_batches([each.segments for each in parts]),
    )


def same_keys(mine: KeyedRows, i: Indices, others: KeyedRows, j: Indices) -> Mask | None:
    """Which pairs of rows have the same key, of those that have the same hash; None: all."""
    pairs = list(zip(mine.keys, others.keys, strict=True))
    if len(pairs) == 1 and all(kinds.is_int64(each.type) for each in pairs[0]):
        return None  # no two ints have the same hash
    found = np.ones(len(i), np.bool_)
    here, there = pa.array(mine.where[i]), pa.array(others.where[j])
    for one, other in pairs:
        if kinds.is_int64(one.type) != kinds.is_int64(other.type):
            return np.zeros(len(i), np.bool_)
        equal = pc.equal(one.take(here), other.take(there))
        found &= equal.to_numpy(zero_copy_only=False)
    return found


class StoredSegments(msgspec.Struct, frozen=True):
    """Segments in their stored form."""

    rows: pa.RecordBatch
    dicts: list[Segment] | None = None
    """The dicts that it was made of, if somebody has them: they need not be decoded."""

    @staticmethod
    def of(segments: Segments) -> StoredSegments:
        """The stored form. Raises SegmentError: a value has no encoding."""
        return format_of(segments).choose(_of_dicts, _of_columns)(segments)

    @property
    def of_dicts(self) -> bool:
        """Whether the segments are dicts."""
        return is_dicts(self.rows.schema)

    def take(self, chosen: Indices) -> StoredSegments:
        """The segments at these indices, which rise."""
        if len(chosen) == self.rows.num_rows:
            return self
        dicts = None if self.dicts is None else self.dicts_at(chosen)
        return StoredSegments(self.rows.take(pa.array(chosen)), dicts)

    def dicts_at(self, chosen: Indices) -> list[Segment]:
        """The segments at these indices as dicts, which nobody may change."""
        if self.dicts is None:
            return as_dicts(segments_of(self.rows.take(pa.array(chosen))))
        return [self.dicts[index] for index in chosen.tolist()]


def _of_dicts(segments: list[Segment]) -> StoredSegments:
    column = pa.array(encode_apart(segments), pa.binary())
    return StoredSegments(pa.RecordBatch.from_arrays([column], schema=_DICTS), segments)


def _of_columns(columns: Columns) -> StoredSegments:
    return StoredSegments(columns.record_batch)


def segments_of(rows: pa.RecordBatch) -> Segments:
    """The segments of a stored form; dicts are new ones."""
    if is_dicts(rows.schema):
        return decode_apart(rows.column(0).to_pylist())
    return Columns(rows)


def is_dicts(schema: pa.Schema) -> bool:
    """Whether rows of a schema are dicts."""
    return bool(schema.equals(_DICTS))
