"""APPLY_FN, AFTER_APPLY_FN: the user's function makes leaves of the batch.

Whole batches only: the user's function is the one thing that is done per segment.
"""

from __future__ import annotations

from onyx.codec.refusals import refuse
from onyx.flow.apply import apply_function
from onyx.flow.leaves import Leaves
from onyx.task.parts import Program, Work
from onyx.task.phases.table import Answer, Progress
from onyx.task.windowed.assign import read_groups


def apply_fn(program: Program, work: Work) -> Answer:
    """Call the function, unless the leaves were kept from the last allocation version."""
    batch, fn, source = work.batch, program.fn, program.source
    if batch is not None:
        work.groups = read_groups(program, batch)
    if work.leaves is not None:
        return Progress.ADVANCED
    if batch is not None:
        if fn is None:
            leaves = Leaves(batch.segments)
        else:
            params = program.event["params"]
            leaves = apply_function(fn, params, batch.segments, program.entry.batch_fn)
        # What cannot travel between tasks has failed. What came from another task can travel.
        checked = fn is None and (source is None or source.examined)
        work.leaves = leaves if checked else refuse(leaves)
        if program.observed:
            program.event["results"] = work.leaves.segments
    work.timer.applied()
    return Progress.ADVANCED


def after_apply_fn(program: Program, work: Work) -> Answer:
    """A hook may have changed segments: they are checked again."""
    if work.leaves is not None and program.lifecycles.has("after_apply_fn"):
        program.lifecycles.merge("after_apply_fn", program.event)
        work.leaves = refuse(work.leaves)
    return Progress.ADVANCED
