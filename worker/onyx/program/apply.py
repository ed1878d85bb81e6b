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
from onyx.flow.batch import Batch, Segments, as_dicts, as_given, take
from onyx.flow.columnar import apply_to_columns
from onyx.flow.columns.record_batch import Columns
from onyx.flow.formats import format_of
from onyx.flow.leaves import Leaves, of_some
from onyx.flow.segment_failure import SegmentFailure
from onyx.functions.returning import Returned, collecting
from onyx.program.batch_work import BatchWork
from onyx.program.fitting import fit
from onyx.program.prepare import read_groups
from onyx.program.program import Program
from onyx.telemetry.catalog import WITHOUT_ROW


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
    fitting, kept, failures = fit(program, segments)
    return _of_kept(_joined(program, fitting), kept, failures)


def _joined(program: Program, segments: Segments) -> Made:
    """What the function makes of segments with what they get from a table."""
    if program.join is None:
        return _returned(program, segments)
    joined, kept, failures, missed = program.join.of(segments)
    if missed:
        program.metrics.add(WITHOUT_ROW, missed)
    return _of_kept(_returned(program, joined), kept, failures)


def _returned(program: Program, segments: Segments) -> Made:
    fn, params = program.fn, program.event["params"]
    if fn is None:
        return Leaves(segments), []
    with collecting(program.job.ack_returns, len(segments), size_bytes) as returned:
        if program.takes == "arrow" and isinstance(segments, Columns):
            leaves = apply_to_columns(fn, params, segments)
        else:
            leaves = apply_function(fn, params, as_dicts(segments), program.entry.batch_fn)
    return leaves, returned


def _of_kept(made: Made, kept: Indices | None, failures: list[SegmentFailure]) -> Made:
    """What is made of a batch of which only some segments were there to make something of."""
    if kept is None:
        return made
    leaves, returned = made
    return of_some(leaves, kept, failures), _at(returned, kept)


def _at(returned: list[Returned], indices: Indices) -> list[Returned]:
    """The values of some segments of a batch, with the indices of these in the batch."""
    return [each._replace(at=int(indices[each.at])) for each in returned]
