"""The newest event time of a column, without a step in Python for each row.

A column of text is parsed as a whole, if all of it has one of the usual forms of ISO 8601;
otherwise each different text once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from onyx.flow.columns import Columns

US_A_MS = 1_000
MS_A_DAY = 86_400_000
_MOMENTS = (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))


def newest_time(column: pa.Array, time_of: Callable[[Any], int]) -> int | None:
    """In milliseconds since 1970; None if all is null.

    Args:
        column: of a usual type.
        time_of: one value as a time; raises for what is none.
    """
    if column.null_count == len(column):
        return None
    kind = column.type
    if kinds.is_timestamp(kind):
        return _greatest(column.cast(pa.int64())) // US_A_MS
    if kinds.is_date32(kind):
        return _greatest(column.cast(pa.int32())) * MS_A_DAY
    if kinds.is_string(kind):
        return _newest_text(column, time_of)
    if kinds.is_integer(kind):
        return time_of(_greatest(column))
    if kinds.is_floating(kind):
        odd = column.filter(pc.invert(pc.is_finite(column)))
        return time_of(odd[0].as_py() if len(odd) else _greatest(column))
    return time_of(column.drop_null()[0].as_py())


def times_array(found: Any) -> pa.Array:
    """What a user's function gives for the rows of a batch, as a column.

    Raises:
        TypeError, ValueError, UserError: it is none.
    """
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    array = found if isinstance(found, pa.Array) else pa.array(found)
    return Columns.of(pa.RecordBatch.from_arrays([array], ["time"])).column("time")


def _newest_text(column: pa.Array, time_of: Callable[[Any], int]) -> int:
    for kind in _MOMENTS:
        try:
            return _greatest(column.cast(kind).cast(pa.int64())) // US_A_MS
        except pa.ArrowInvalid:
            continue
    return max(map(time_of, pc.unique(column.drop_null()).to_pylist()))


def _greatest(column: pa.Array) -> int:
    """Of numbers; a column of floats has a float."""
    found: int = pc.max(column).as_py()
    return found
