"""Segments as the code of a task gets them: those that fit its schema, as columns or as dicts.

Whether a dict fits is looked at by making columns of all of them, so both formats have one meaning;
the function gets the dict as it is. A task with neither a schema nor columns does not pay for that.
"""

from __future__ import annotations

import numpy as np

from onyx.flow.batch import Indices, Segments, as_columns, take
from onyx.flow.columns.record_batch import Columns
from onyx.flow.formats import Fitted
from onyx.flow.segment_failure import Refusal, SegmentFailure
from onyx.program.program import Program

Fit = tuple[Segments, Indices | None, list[SegmentFailure]]
"""Segments, their indices in the batch (None: all of it), and for each other segment its index and
why it does not fit."""


def fit(program: Program, segments: Segments) -> Fit:
    """The segments of a batch that the task's code is to get."""
    if program.takes == "arrow":
        return fit_columns(program, segments)
    if program.schema is None:
        return segments, None, []
    _, kept, failures = fit_columns(program, segments)
    return segments if kept is None else take(segments, kept), kept, failures


def fit_columns(program: Program, segments: Segments) -> Fitted:
    """Columns of those that the task's code is to get."""
    columns, kept, failures = as_columns(segments, program.schema)
    lacking = _lacking(columns, program.entry.required)
    if not lacking:
        return columns, kept, failures
    rows = np.arange(len(columns))
    indices = rows if kept is None else kept
    found = dict(failures) | {int(indices[row]): error for row, error in lacking.items()}
    there = np.delete(rows, list(lacking))
    return columns.take(there), indices[there], sorted(found.items(), key=_index)


def _lacking(columns: Columns, required: tuple[str, ...]) -> dict[int, Exception]:
    """The rows in which a key is missing or null that has to be there, each with the first one."""
    found: dict[int, Exception] = {}
    for key in required:
        column = columns.record_batch.column(key)
        if column.null_count:
            nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            error = Refusal(f"the segment has no {key!r}, which is required")
            found = dict.fromkeys(nulls.tolist(), error) | found
    return found


def _index(failure: SegmentFailure) -> int:
    return failure[0]
