"""APPLY_FN, AFTER_APPLY_FN: the user's function makes leaves of the batch."""

from __future__ import annotations

from onyx.codec.refusals import refuse
from onyx.program.apply import apply
from onyx.program.keyed.apply import apply_keyed
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.work import Work
from onyx.task.table import ADVANCED, Answer


def apply_fn(runtime: Runtime, allocation: Allocation, work: Work) -> Answer:
    """Call the function, unless the leaves were kept from the last allocation version."""
    source, kept = runtime.source, work.leaves is not None
    if runtime.program.keyed is None:
        apply(runtime.program, work, examined=source is None or source.examined)
    elif allocation.windowing is not None:
        with allocation.windowing.calls.failures():
            apply_keyed(runtime.program, allocation.windowing, work)
    if not kept:
        work.timer.applied()
    return ADVANCED


def after_apply_fn(runtime: Runtime, work: Work) -> Answer:
    """A hook may have changed segments: they are checked again."""
    program = runtime.program
    if work.leaves is not None and program.lifecycles.has("after_apply_fn"):
        program.lifecycles.merge("after_apply_fn", program.event)
        work.leaves = refuse(work.leaves)
    return ADVANCED
