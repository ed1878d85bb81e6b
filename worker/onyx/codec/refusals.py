"""Which segments of a batch cannot travel, and why: the same inside a process and between two.

Within one process a batch passes from task to task without being encoded. Without a check there, a
job would run on a laptop and fail in a cluster. So every segment that a function, an input or a
trigger makes is checked once, before it is sent: the types and keys of a whole batch in a few calls
in C, and limits by encoding the values, whose bytes are discarded. Only in a batch with an unusual
value are segments checked one by one, to find the segment, the key and the reason. A refused
segment fails as if the function had raised for it; the caller decides what follows.

Rows of columns that cannot be segments are too large ones, moments that Python does not have, and
values that Arrow itself calls invalid, which mostly is text that is not UTF-8. Whoever makes a
column may put any bytes into text, because Arrow, Parquet and Polars only look when they are asked.
A task of dicts could not read such a row, and another process takes it for damage. The least and
the greatest moment of a column say that all is well, and so does one pass over its text (10 ns a
value), which is the usual case. Rows are looked for only in a batch with a wrong one.
"""

from __future__ import annotations

from collections.abc import Sequence
from gc import get_referents
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.codec.kinds import PLAIN, TEXT, fits, levels, wrong
from onyx.errors import SegmentError, describe_type
from onyx.flow.batch import Segment, chosen_by, format_of
from onyx.flow.columns.compute import pc
from onyx.flow.columns.moments import beyond
from onyx.flow.columns.record_batch import Columns
from onyx.flow.leaves import Leaves
from onyx.flow.segment import SegmentFailure

_encoder = msgspec.msgpack.Encoder()
_WRONG = (TypeError, ValueError, OverflowError, RecursionError)


_OF_A_CHILD = "child array"
"""In what Arrow says of a list or struct that holds an invalid value."""
_MEND = "mend it where it is made"
_NO_TEXT = f"text that is not UTF-8, which no str is: {_MEND}, or let the column be binary"
SEGMENT_BYTES_MAX = 2_097_152
"""Largest segment, encoded. With its lineage it fits into a frame of the transport."""


def refused(segments: Sequence[Segment]) -> list[SegmentFailure]:
    """The segments that cannot travel, by index, each with a SegmentError that names the key."""
    if not segments or _all_fit(segments):
        return []
    found = ((index, refusal(segment)) for index, segment in enumerate(segments))
    return [(index, error) for index, error in found if error is not None]


def fits_alone(segment: Segment) -> bool:
    """Whether nothing speaks against a segment: `refused` for one, in a third of the time. False
    may be wrong."""
    try:
        is_plain = PLAIN.issuperset(map(type, segment.values()))
        is_plain = is_plain and TEXT.issuperset(map(type, segment))
        return is_plain and len(_encoder.encode(segment)) <= SEGMENT_BYTES_MAX
    except _WRONG:
        return False


def refuse(leaves: Leaves) -> Leaves:
    """What a function made of a batch, without what it made of parents of which something cannot
    travel: these have failed."""
    found = format_of(leaves.segments).choose(refused, refused_rows)(leaves.segments)
    if not found:
        return leaves
    parents = np.arange(len(leaves)) if leaves.parents is None else leaves.parents
    failures: dict[int, Exception] = {}
    for index, error in found:
        failures.setdefault(int(parents[index]), error)
    kept = np.isin(parents, list(failures), invert=True)
    return Leaves(
        chosen_by(leaves.segments, kept),
        parents[kept],
        None if leaves.child_index is None else leaves.child_index[kept],
        sorted([*leaves.failures, *failures.items()], key=itemgetter(0)),
    )


def refusal(segment: Any) -> SegmentError | None:
    """Why a segment cannot travel; None if it can."""
    if type(segment) is not dict:
        return SegmentError(
            f"the segment is {describe_type(segment)}, not a dict; a function returns a dict, a "
            "list of dicts or None"
        )
    for path, what, hint in wrong(segment, "", -1):
        what_is_wrong = f"key {path!r} holds {what}" if path else f"the segment has {what}"
        return SegmentError(f"{what_is_wrong}, which cannot travel between tasks: {hint}")
    size = _size(segment)
    return _too_large(segment, size) if size > SEGMENT_BYTES_MAX else None


def _all_fit(segments: Sequence[Segment]) -> bool:
    """Whether nothing speaks against any of them; False may be wrong."""
    try:
        keys = set().union(*segments)
        values = get_referents(*segments)
        size = len(_encoder.encode(values)) + len(_encoder.encode(list(keys)))
        if size > SEGMENT_BYTES_MAX and max(map(_size, segments)) > SEGMENT_BYTES_MAX:
            return False
        if not TEXT.issuperset(map(type, keys)):
            return False
        return PLAIN.issuperset(map(type, values)) or all(map(fits, levels(values)))
    except _WRONG:
        return False


def _size(segment: Segment) -> int:
    return len(_encoder.encode(segment))


def _too_large(segment: Segment, size: int) -> SegmentError:
    largest = max(segment, key=lambda key: len(_encoder.encode([key, segment[key]])))
    taken = len(_encoder.encode(segment[largest]))
    return too_large(size, largest, taken)


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


def too_large(size_bytes: int, largest: str, taken_bytes: int) -> SegmentError:
    """The error of a segment of this size, with its largest key and the size of that."""
    return SegmentError(
        f"the segment takes {size_bytes} bytes, of which key {largest!r} takes {taken_bytes}; at "
        f"most {SEGMENT_BYTES_MAX} can travel between tasks: store large values elsewhere and send "
        "their address"
    )
