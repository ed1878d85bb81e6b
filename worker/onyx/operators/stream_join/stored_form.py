"""Segments in the form in which a join stores them: a record batch, whatever their format.

Dicts are a column with the bytes of each. They take less memory so, lie in files as columns do, and
nobody who gets a result can change what is stored.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from onyx.codec.segments import decode_apart, encode_apart
from onyx.flow.arrays import Indices
from onyx.flow.batch import Segment, Segments, as_dicts, format_of
from onyx.flow.columns.record_batch import Columns

_DICTS = pa.schema([("\0segment", pa.binary())])
"""No key of a segment is called so by chance."""


class Stored(msgspec.Struct, frozen=True):
    """Segments in their stored form."""

    rows: pa.RecordBatch
    dicts: list[Segment] | None = None
    """The dicts that it was made of, if somebody has them: they need not be decoded."""

    @staticmethod
    def of(segments: Segments) -> Stored:
        """The stored form. Raises SegmentError: a value has no encoding."""
        return format_of(segments).choose(_of_dicts, _of_columns)(segments)

    @property
    def of_dicts(self) -> bool:
        """Whether the segments are dicts."""
        return is_dicts(self.rows.schema)

    def take(self, chosen: Indices) -> Stored:
        """The segments at these indices, which rise."""
        if len(chosen) == self.rows.num_rows:
            return self
        dicts = None if self.dicts is None else self.dicts_at(chosen)
        return Stored(self.rows.take(pa.array(chosen)), dicts)

    def dicts_at(self, chosen: Indices) -> list[Segment]:
        """The segments at these indices as dicts, which nobody may change."""
        if self.dicts is None:
            return as_dicts(segments_of(self.rows.take(pa.array(chosen))))
        return [self.dicts[index] for index in chosen.tolist()]


def _of_dicts(segments: list[Segment]) -> Stored:
    column = pa.array(encode_apart(segments), pa.binary())
    return Stored(pa.RecordBatch.from_arrays([column], schema=_DICTS), segments)


def _of_columns(columns: Columns) -> Stored:
    return Stored(columns.record_batch)


def segments_of(rows: pa.RecordBatch) -> Segments:
    """The segments of a stored form; dicts are new ones."""
    if is_dicts(rows.schema):
        return decode_apart(rows.column(0).to_pylist())
    return Columns(rows)


def is_dicts(schema: pa.Schema) -> bool:
    """Whether rows of a schema are dicts."""
    return bool(schema.equals(_DICTS))
