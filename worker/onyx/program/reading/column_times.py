"""The event times of a column, without a step in Python for each row.

A column of text is parsed as a whole, if all of it has one of the usual forms of ISO 8601. If not,
what looks like that is, and each other text once, by itself. So a few values that are no times cost
little more than themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import UserError
from onyx.flow.columns.compute import pc
from onyx.flow.columns.moments import is_within
from onyx.flow.columns.record_batch import Columns, shown_dicts
from onyx.flow.segment_failure import SegmentFailure

US_A_MS = 1_000
MS_A_DAY = 86_400_000
_MOMENTS = (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))
_USUAL = (
    r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})$",
    r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?$",
)
"""Text of one of these forms is mostly cast as a whole: with a time zone, and without."""
_INT64_MAX = 2**63 - 1
Times = tuple[int | None, list[SegmentFailure]]
"""The newest time, in milliseconds since 1970, and the rows that have none although they have a
value; None: no row has a time."""


def times_of(column: pa.Array, time_of: Callable[[Any], int]) -> Times:
    """The times of a column of a usual type; a null is no time, and nothing is wrong with that.

    Args:
        time_of: one value as a time; raises UserError for what is none.
    """
    if column.null_count == len(column):
        return None, []
    kind = column.type
    if kinds.is_timestamp(kind):
        return _greatest(column.cast(pa.int64())) // US_A_MS, []
    if kinds.is_date32(kind):
        return _greatest(column.cast(pa.int32())) * MS_A_DAY, []
    if kinds.is_string(kind):
        return _of_text(column, time_of)
    if kinds.is_integer(kind):
        return _of_numbers(column, _beyond(column), time_of)
    if kinds.is_floating(kind):
        odd = pc.or_(pc.invert(pc.is_finite(column)), pc.greater_equal(pc.abs(column), 2.0**63))
        return _of_numbers(column, odd, time_of)
    return _each(column, time_of)


def times_array(found: Any, rows: int) -> pa.Array:
    """What a user's function gives for the rows of a batch, as a column.

    Raises:
        TypeError, ValueError, UserError: it is none, or has another length.
    """
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    array = found if isinstance(found, pa.Array) else pa.array(found)
    if len(array) != rows:
        raise UserError(f"gives {len(array)} times for {rows} rows: one for each row, or null")
    return Columns.of(pa.RecordBatch.from_arrays([array], ["time"])).column("time")


def _of_text(column: pa.Array, time_of: Callable[[Any], int]) -> Times:
    newest = _cast(column)
    if newest is not None:
        return newest, []
    left = pc.is_valid(column)
    found: list[int] = []
    for form in _USUAL:
        usual = pc.and_(left, pc.match_substring_regex(column, form).fill_null(False))
        newest = _cast(column.filter(usual)) if pc.any(usual).as_py() else None
        if newest is not None:
            found.append(newest)
            left = pc.and_not(left, usual)
    newest, failures = _each(pc.if_else(left, column, None), time_of)
    return max([*found, *([] if newest is None else [newest])], default=None), failures


def _cast(column: pa.Array) -> int | None:
    """The newest of text that has one usual form; None if it has not."""
    for kind in _MOMENTS:
        with contextlib.suppress(pa.ArrowInvalid):
            return _greatest(column.cast(kind).cast(pa.int64())) // US_A_MS
    return None


def _of_numbers(column: pa.Array, odd: pa.Array, time_of: Callable[[Any], int]) -> Times:
    if not pc.any(odd).as_py():
        return time_of(_greatest(column)), []
    good = column.filter(pc.invert(odd.fill_null(False)))
    newest = time_of(_greatest(good)) if good.null_count < len(good) else None
    return newest, list(_failures(column, odd, time_of))


def _failures(
    column: pa.Array, odd: pa.Array, time_of: Callable[[Any], int]
) -> Iterator[SegmentFailure]:
    for row in np.flatnonzero(odd.fill_null(False).to_numpy(zero_copy_only=False)).tolist():
        try:
            time_of(column[row].as_py())
        except UserError as error:
            yield row, error


def _each(column: pa.Array, time_of: Callable[[Any], int]) -> Times:
    """Value by value; the same text once."""
    newest: int | None = None
    failures: list[SegmentFailure] = []
    known: dict[str, int | UserError] = {}
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    alone = Columns(pa.RecordBatch.from_arrays([column.take(pa.array(rows))], ["time"]))
    for row, shown in zip(rows.tolist(), shown_dicts(alone), strict=True):
        value = shown["time"]
        time = known.get(value) if isinstance(value, str) else None
        if time is None:
            time = _one(value, time_of)
            if isinstance(value, str):
                known[value] = time
        if isinstance(time, UserError):
            failures.append((row, time))
        else:
            newest = time if newest is None else max(newest, time)
    return newest, failures


def _one(value: Any, time_of: Callable[[Any], int]) -> int | UserError:
    try:
        return time_of(value)
    except UserError as error:
        return error


def _beyond(column: pa.Array) -> pa.Array:
    """Which integers are no times: of unsigned ones those beyond 63 bits."""
    if not kinds.is_uint64(column.type) or is_within(column, 0, _INT64_MAX):
        return pa.repeat(False, len(column))
    return pc.greater(column, pa.scalar(_INT64_MAX, pa.uint64()))


def _greatest(column: pa.Array) -> int:
    """The greatest of numbers; a column of floats has a float."""
    found: int = pc.max(column).as_py()
    return found
