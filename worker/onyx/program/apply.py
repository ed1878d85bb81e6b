"""The user's function makes leaves of a batch.

Whole batches only: the user's function is the one thing that is done per segment, and with columns
not even that. Segments are converted here, by the task that wants another format than they have.
"""

from __future__ import annotations

import numpy as np

from onyx.codec.refusals import refuse
from onyx.codec.returns import size_bytes
from onyx.flow.apply import apply_function
from onyx.flow.arrays import Indices
from onyx.flow.batch import Batch, Segments, as_columns, as_dicts, as_given, take
from onyx.flow.columnar import apply_to_columns
from onyx.flow.formats import Fitted, format_of
from onyx.flow.leaves import Leaves, of_some
from onyx.program.batch_work import BatchWork
from onyx.program.prepare import read_groups
from onyx.program.program import Program
from onyx.returning import Returned, collecting


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
    travels = program.fn is None and (examined or format_of(batch.segments).checked_when_read)
    work.leaves = leaves if travels else refuse(leaves)
    if program.observed:
        program.event["results"] = as_given(work.leaves.segments)


Made = tuple[Leaves, list[Returned]]
"""What a function makes of a batch, and gives back for it."""


def _leaves(program: Program, batch: Batch) -> Made:
    """What is made of a batch. Bad records have failed, and the function does not get them."""
    segments = batch.segments
    if not batch.bad:
        return _made(program, segments)
    kept = np.delete(np.arange(len(batch)), [index for index, _ in batch.bad])
    leaves, returned = _made(program, take(segments, kept))
    return of_some(leaves, kept, batch.bad), _at(returned, kept)


def _made(program: Program, segments: Segments) -> Made:
    fn, entry = program.fn, program.entry
    if program.takes == "arrow":
        return _of_columns(program, as_columns(segments, program.schema))
    if fn is None:
        return Leaves(segments), []
    with collecting(program.job.ack_returns, len(segments), size_bytes) as returned:
        leaves = apply_function(fn, program.event["params"], as_dicts(segments), entry.batch_fn)
    return leaves, returned


def _of_columns(program: Program, fitted: Fitted) -> Made:
    columns, kept, failures = fitted
    returned: list[Returned] = []
    if program.fn is None:
        leaves = Leaves(columns)
    else:
        with collecting(program.job.ack_returns, len(columns), size_bytes) as returned:
            leaves = apply_to_columns(program.fn, program.event["params"], columns)
    if kept is None:
        return leaves, returned
    return of_some(leaves, kept, failures), _at(returned, kept)


def _at(returned: list[Returned], indices: Indices) -> list[Returned]:
    """The values of some segments of a batch, with the indices of these in the batch."""
    return [each._replace(at=int(indices[each.at])) for each in returned]
