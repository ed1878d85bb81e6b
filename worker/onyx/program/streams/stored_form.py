"""Segments in the form in which a join stores them: a record batch, whatever their format.

Dicts are a column with the bytes of each. They take less memory so, lie in files as columns do, and
nobody who gets a result can change what is stored.
"""

from __future__ import annotations

import pyarrow as pa

from onyx.codec.values import decode_values, encode_each
from onyx.flow.batch import Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns

_DICTS = pa.schema([("\0segment", pa.binary())])
"""No key of a segment is called so by chance."""


def stored(segments: Segments) -> pa.RecordBatch:
    """The stored form. Raises SegmentError: a value has no encoding."""
    return format_of(segments).choose(_of_dicts, _of_columns)(segments)


def _of_dicts(segments: list[Segment]) -> pa.RecordBatch:
    column = pa.array(encode_each([[each] for each in segments]), pa.binary())
    return pa.RecordBatch.from_arrays([column], schema=_DICTS)


def _of_columns(columns: Columns) -> pa.RecordBatch:
    return columns.record_batch


def segments_of(rows: pa.RecordBatch) -> Segments:
    """The segments of a stored form; dicts are new ones."""
    if is_dicts(rows):
        return [decode_values(each)[0] for each in rows.column(0).to_pylist()]
    return Columns(rows)


def is_dicts(rows: pa.RecordBatch) -> bool:
    """Whether these are dicts."""
    return bool(rows.schema.equals(_DICTS))
