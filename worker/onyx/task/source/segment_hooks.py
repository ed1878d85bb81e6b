"""The hooks that are called for each segment of an input task, for those jobs that have them.

A segment is named by `(partition, position)`, the same in every attempt. Only a job with such a
hook pays for looking which positions are meant.
"""

from __future__ import annotations

from onyx.base.runs import Numbers, array_of
from onyx.errors import contained
from onyx.flow.batch import Batch
from onyx.ledger.lineage import partitions_of, positions_of
from onyx.program.failure import Failure
from onyx.program.program import Program
from onyx.task.source.source import Source


def complete(source: Source, program: Program, roots: Numbers) -> None:
    """Mark trees as processed and call after_ack_segment for each that was not before."""
    if not program.lifecycles.has("after_ack_segment"):
        source.complete(roots)
        return
    fresh = source.incomplete(roots)
    source.complete(roots)
    _call(source, program, "after_ack_segment", fresh)


def retried(source: Source, program: Program, batch: Batch) -> None:
    """Call after_retry_segment for each segment of a batch that is sent again."""
    if batch.roots is not None and program.lifecycles.has("after_retry_segment"):
        _call(source, program, "after_retry_segment", batch.roots)


def _call(source: Source, program: Program, hook: str, roots: Numbers) -> None:
    array = array_of(roots)
    numbers, positions = partitions_of(array).tolist(), positions_of(array).tolist()
    try:
        for number, position in zip(numbers, positions, strict=True):
            message = (source.partitions[number].name, position)
            program.lifecycles.each_segment(hook, program.event, message)
    except BaseException as error:
        raise Failure(hook.replace("_", "-"), contained(error)) from error
