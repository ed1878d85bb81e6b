"""Which rows of columns cannot be segments: too large ones, and moments that Python does not have.

An Arrow timestamp reaches from the year -290308 to 294247, and `datetime` from 1 to 9999. A task of
dicts could not read such a row, so it fails where it comes from, like a segment that cannot travel.
The least and the greatest moment of a column say that all is well, which is the usual case; rows
are looked at one by one only in a batch with a wrong one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from onyx.codec.limits import SEGMENT_BYTES_MAX, too_large
from onyx.errors import SegmentError
from onyx.flow.batch import Mask
from onyx.flow.column_values import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, is_utc, is_within
from onyx.flow.columns import Columns
from onyx.flow.segment_failure import SegmentFailure

_DAY_US = 86_400_000_000
"""Local time is less than a day from UTC."""


def refused_rows(columns: Columns) -> list[SegmentFailure]:
    """The rows that cannot be segments, by index, each once, with an error that names the key."""
    wrong = dict(_wrong_moments(columns))
    for index, error in _large(columns, 0):
        wrong.setdefault(index, error)
    return sorted(wrong.items())


def text_of(columns: Columns, index: int) -> str:
    """A row that may have no dict, for messages."""
    row = columns.slice(index, index + 1).record_batch
    texts = [column.to_string(indent=0, skip_new_lines=True)[1:-1] for column in row]
    return str(dict(zip(row.schema.names, texts, strict=True)))


def _large(columns: Columns, first: int) -> list[SegmentFailure]:
    """A batch with a row that is too large is halved until the row is found."""
    count, size = len(columns), columns.size_bytes
    if size <= SEGMENT_BYTES_MAX:
        return []
    if count == 1:
        batch = columns.record_batch
        sizes = [column.nbytes for column in batch.columns]
        largest = int(np.argmax(sizes))
        return [(first, too_large(size, batch.schema.names[largest], sizes[largest]))]
    half = count // 2
    return [
        *_large(columns.slice(0, half), first),
        *_large(columns.slice(half, count), first + half),
    ]


def _wrong_moments(columns: Columns) -> list[SegmentFailure]:
    found: list[SegmentFailure] = []
    batch = columns.record_batch
    for field, column in zip(batch.schema, batch.columns, strict=True):
        mask = _beyond(column) if _has_moments(field.type) else None
        if mask is not None:
            error = SegmentError(
                f"key {field.name!r} holds a moment outside of the years 1 to 9999, which "
                "no date of Python is: mend it where it is made"
            )
            found += [(index, error) for index in np.flatnonzero(mask).tolist()]
    return found


@lru_cache(maxsize=256)
def _has_moments(kind: pa.DataType) -> bool:
    if kinds.is_list(kind):
        return _has_moments(kind.value_type)
    if kinds.is_struct(kind):
        return any(_has_moments(each.type) for each in kind.fields)
    return bool(kinds.is_timestamp(kind) or kinds.is_date32(kind))


def _beyond(column: pa.Array) -> Mask | None:
    """The rows that hold such a moment; None if none does."""
    kind = column.type
    if kinds.is_list(kind):
        inner = _beyond(column.flatten())
        if inner is None:
            return None
        mask = np.zeros(len(column), dtype=np.bool_)
        mask[pc.list_parent_indices(column).to_numpy()[inner]] = True
        return mask
    if kinds.is_struct(kind):
        masks = [_beyond(each) for each in column.flatten()]
        found = [mask for mask in masks if mask is not None]
        return np.logical_or.reduce(found) if found else None
    if kinds.is_date32(kind):
        return _outside(column.cast(pa.int32()), FIRST_DAY, LAST_DAY)
    if kinds.is_timestamp(kind):
        margin = 0 if is_utc(kind) else _DAY_US
        return _outside(column.cast(pa.int64()), FIRST_US + margin, LAST_US - margin)
    return None


def _outside(numbers: pa.Array, low: int, high: int) -> Mask | None:
    if is_within(numbers, low, high):
        return None
    outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
    mask: Mask = outside.fill_null(False).to_numpy(zero_copy_only=False)
    return mask
