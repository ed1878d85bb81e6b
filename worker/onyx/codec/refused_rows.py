"""Which rows of columns cannot be segments: too large ones, moments that Python does not have, and
values that Arrow itself calls invalid, which mostly is text that is not UTF-8.

Whoever makes a column may put any bytes into text, because Arrow, Parquet and Polars only look when
they are asked. A task of dicts could not read such a row, and another process takes it for damage.
So it fails where it comes from, like a segment that cannot travel.

The least and the greatest moment of a column say that all is well, and so does one pass over its
text (10 ns a value), which is the usual case. Rows are looked for only in a batch with a wrong one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.codec.limits import SEGMENT_BYTES_MAX, too_large
from onyx.errors import SegmentError
from onyx.flow.columns.compute import pc
from onyx.flow.columns.moments import beyond
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import SegmentFailure

_OF_A_CHILD = "child array"
"""In what Arrow says of a list or struct that holds an invalid value."""
_MEND = "mend it where it is made"
_NO_TEXT = f"text that is not UTF-8, which no str is: {_MEND}, or let the column be binary"


def refused_rows(columns: Columns) -> list[SegmentFailure]:
    """The rows that cannot be segments, by index, each once, with an error that names the key."""
    wrong = dict(_invalid(columns))
    for index, error in (*_wrong_moments(columns), *_large(columns, 0)):
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


def _invalid(columns: Columns) -> list[SegmentFailure]:
    """Rows of which a value is no value of its type."""
    batch = columns.record_batch
    return [
        (index, SegmentError(f"key {name!r} holds {what}"))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        for index, what in _invalid_values(column).items()
    ]


def _invalid_values(column: pa.Array) -> dict[int, str]:
    """What is wrong, by row."""
    said, kind = _said(column), column.type
    if not said:
        return {}
    if _OF_A_CHILD in said and kinds.is_list(kind):
        parents = pc.list_parent_indices(column).to_numpy()
        inner = _invalid_values(column.flatten())
        return {int(parents[index]): what for index, what in inner.items()}
    if _OF_A_CHILD in said and kinds.is_struct(kind):
        return {
            row: what for each in column.flatten() for row, what in _invalid_values(each).items()
        }
    if kinds.is_string(kind):
        return dict.fromkeys((row for row, _ in _by_halves(column, 0)), _NO_TEXT)
    return {row: f"no {kind} ({why}): {_MEND}" for row, why in _by_halves(column, 0)}


def _said(column: pa.Array) -> str:
    """What Arrow has to say against the values; empty if nothing. A slice of lists or structs is
    judged by what is around it, too."""
    try:
        column.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def _by_halves(column: pa.Array, first: int) -> list[tuple[int, str]]:
    """The invalid values: few are, and a part costs hardly more than one of them."""
    said = _said(column)
    if not said or len(column) <= 1:
        return [(first, said)] if said else []
    half = len(column) // 2
    left = _by_halves(column.slice(0, half), first)
    return left + _by_halves(column.slice(half), first + half)


def _wrong_moments(columns: Columns) -> list[SegmentFailure]:
    found: list[SegmentFailure] = []
    batch = columns.record_batch
    for field, column in zip(batch.schema, batch.columns, strict=True):
        mask = beyond(column)
        if mask is not None:
            error = SegmentError(
                f"key {field.name!r} holds a moment outside of the years 1 to 9999, which "
                f"no date of Python is: {_MEND}"
            )
            found += [(index, error) for index in np.flatnonzero(mask).tolist()]
    return found
