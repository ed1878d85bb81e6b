"""The user's function makes leaves of a batch: of the segments that fit its schema, as dicts or as
columns; and what a state needs of the batch is read before and after.

Whole batches only: the user's function is the one thing that is done per segment, and with columns
not even that. Segments are converted here, by the task that wants another format than they have.

Whether a dict fits is looked at by making columns of all of them, so both formats have one meaning;
the function gets the dict as it is. A task with neither a schema nor columns does not pay for
that.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TypeVar

import numpy as np

from onyx.codec.refusals import refuse
from onyx.codec.returns import size_bytes
from onyx.flow.batch import (
    Batch,
    Fitted,
    FoundKeys,
    Indices,
    Segment,
    Segments,
    as_columns,
    as_dicts,
    as_given,
    format_of,
    take,
)
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes, KeyList
from onyx.flow.groups.getters import KeyGetter, naming
from onyx.flow.leaves import Leaves, apply_function, apply_to_columns, of_some
from onyx.flow.segment import Refusal, SegmentFailure
from onyx.functions.returning import Returned, collecting
from onyx.keystate.coded import GroupKeys, Keyed
from onyx.model.job import CatalogEntry
from onyx.program.batch_work import BatchWork
from onyx.program.program import Program
from onyx.telemetry.catalog import WITHOUT_ROW

FunctionResult = tuple[Leaves, list[Returned]]
"""What a function makes of a batch, and gives back for it."""


def apply(program: Program, work: BatchWork, examined: bool) -> None:
    """Call the function over the batch, unless the leaves are there already.

    Args:
        examined: every segment of the batch can travel between tasks.
    """
    batch = work.batch
    if batch is None:
        return
    work.groups = read_groups(program, batch)
    if work.leaves is not None:
        return
    leaves, work.returned = _leaves(program, batch)
    # What cannot travel between tasks has failed. Of columns, the rows that cannot are bad.
    own = program.fn is not None or program.join is not None
    travels = not own and (examined or format_of(batch.segments).checked_when_read)
    work.leaves = leaves if travels else refuse(leaves)
    if program.observed:
        program.event["results"] = as_given(work.leaves.segments)


def _leaves(program: Program, batch: Batch) -> FunctionResult:
    """What is made of a batch. Bad records have failed, and the function does not get them."""
    segments = batch.segments
    if not batch.bad:
        return _made(program, segments)
    kept = np.delete(np.arange(len(batch)), [index for index, _ in batch.bad])
    leaves, returned = _made(program, take(segments, kept))
    return of_some(leaves, kept, batch.bad), _at(returned, kept)


def _made(program: Program, segments: Segments) -> FunctionResult:
    fitting, kept, failures = fit(program, segments)
    return _of_kept(_joined(program, fitting), kept, failures)


def _joined(program: Program, segments: Segments) -> FunctionResult:
    """What the function makes of segments with what they get from a table."""
    if program.join is None:
        return _returned(program, segments)
    joined, kept, failures, missed = program.join.of(segments)
    if missed:
        program.metrics.add(WITHOUT_ROW, missed)
    return _of_kept(_returned(program, joined), kept, failures)


def _returned(program: Program, segments: Segments) -> FunctionResult:
    fn, params = program.fn, program.event["params"]
    if fn is None:
        return Leaves(segments), []
    with collecting(program.job.ack_returns, len(segments), size_bytes) as returned:
        if program.takes == "arrow" and isinstance(segments, Columns):
            leaves = apply_to_columns(fn, params, segments)
        else:
            leaves = apply_function(fn, params, as_dicts(segments), program.entry.batch_fn)
    return leaves, returned


def _of_kept(
    made: FunctionResult, kept: Indices | None, failures: list[SegmentFailure]
) -> FunctionResult:
    """What is made of a batch of which only some segments were there to make something of."""
    if kept is None:
        return made
    leaves, returned = made
    return of_some(leaves, kept, failures), _at(returned, kept)


def _at(returned: list[Returned], indices: Indices) -> list[Returned]:
    """The values of some segments of a batch, with the indices of these in the batch."""
    return [each._replace(at=int(indices[each.at])) for each in returned]


# --- segments as the code of the task gets them -------------------------------------------------

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


# --- what a state needs of a batch --------------------------------------------------------------

Seen = TypeVar("Seen")


def read_groups(program: Program, batch: Batch) -> Keyed | None:
    """The groups of a batch, before the function may change what it is given; None without."""
    its = program.operator
    if its is None:
        return None
    known = None if program.lifecycles.hooks else batch.keys  # hooks may have changed segments
    getter = its.key_of(batch.upstream)
    return groups_of(getter, its.group_keys, program.entry, batch.segments, known)


def groups_of(
    getter: KeyGetter | None,
    keys: GroupKeys,
    entry: CatalogEntry,
    segments: Segments,
    known: FoundKeys | None,
) -> Keyed | None:
    """The groups of segments as a task has them; None where it has no groups.

    Args:
        getter: reads the key of a segment; None without groups.
        keys: those that have come before.
        entry: of the task, for messages.
        known: their keys, if somebody has found them.
    """
    if getter is None:
        return None
    with naming(entry):
        read = format_of(segments).choose(_groups_of_dicts, _groups_of_columns)
        return read(segments, getter, keys, known)


def _groups_of_dicts(
    segments: list[Segment], key: KeyGetter, keys: GroupKeys, known: FoundKeys | None
) -> Keyed:
    return keys.of_list(known if isinstance(known, KeyList) else key.of_dicts(segments))


def _groups_of_columns(
    columns: Columns, key: KeyGetter, keys: GroupKeys, known: FoundKeys | None
) -> Keyed:
    return keys.of(known if isinstance(known, KeyCodes) else key.of_columns(columns))


def look_at_leaves(
    leaves: Leaves, segments: Segments, look: Callable[[Segments], Seen]
) -> Seen | None:
    """What is seen of the segments of leaves; None if some cannot be looked at: these are in
    `refusals` then."""
    try:
        return look(segments)
    except Exception:
        parents = range(len(segments)) if leaves.parents is None else leaves.parents.tolist()
        refused: dict[int, Exception] = {}
        for index, error in format_of(segments).bad(segments, look):
            refused.setdefault(parents[index], error)
        leaves.refusals = sorted(refused.items(), key=itemgetter(0))
        return None
