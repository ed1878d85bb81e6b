"""The hooks that are called for each segment of an input task, for those jobs that have them.

A segment is named by `(partition, position)`, the same in every attempt. Only a job with such a
hook pays for looking which positions are meant.
"""

from __future__ import annotations

from onyx.errors import contained
from onyx.flow.batch import U64, Batch
from onyx.ledger.lineage import partitions_of, positions_of
from onyx.task.failures.failure import Failure
from onyx.task.source.source import Source
from onyx.task.task import Task


def complete(task: Task, source: Source, roots: U64) -> None:
    """Mark trees as processed and call after_ack_segment for each that was not before."""
    if not task.static.lifecycles.has("after_ack_segment"):
        source.complete(roots)
        return
    fresh = source.incomplete(roots)
    source.complete(roots)
    _call(task, source, "after_ack_segment", fresh)


def retried(task: Task, source: Source, batch: Batch, count: int) -> None:
    """Call after_retry_segment for each segment of a batch that is sent again."""
    if count and batch.roots is not None and task.static.lifecycles.has("after_retry_segment"):
        _call(task, source, "after_retry_segment", batch.roots)


def _call(task: Task, source: Source, hook: str, roots: U64) -> None:
    numbers, positions = partitions_of(roots).tolist(), positions_of(roots).tolist()
    lifecycles, event = task.static.lifecycles, task.static.event
    try:
        for number, position in zip(numbers, positions, strict=True):
            lifecycles.each_segment(hook, event, (source.partitions[number].name, position))
    except BaseException as error:
        raise Failure(hook.replace("_", "-"), contained(error)) from error
