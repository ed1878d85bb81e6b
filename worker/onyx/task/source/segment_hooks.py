"""The hooks that are called for each segment of an input task, for those jobs that have them.

A segment is named by `(partition, position)`, the same in every attempt. Only a job with such a
hook pays for looking which positions are meant.
"""

from __future__ import annotations

from onyx.errors import contained
from onyx.flow.batch import U64, Batch
from onyx.ledger.lineage import partitions_of, positions_of
from onyx.program.failure import Failure
from onyx.program.lifecycles import Event, Lifecycles
from onyx.task.source.source import Source


def complete(source: Source, lifecycles: Lifecycles, event: Event, roots: U64) -> None:
    """Mark trees as processed and call after_ack_segment for each that was not before."""
    if not lifecycles.has("after_ack_segment"):
        source.complete(roots)
        return
    fresh = source.incomplete(roots)
    source.complete(roots)
    _call(source, lifecycles, event, "after_ack_segment", fresh)


def retried(source: Source, lifecycles: Lifecycles, event: Event, batch: Batch) -> None:
    """Call after_retry_segment for each segment of a batch that is sent again."""
    if batch.roots is not None and lifecycles.has("after_retry_segment"):
        _call(source, lifecycles, event, "after_retry_segment", batch.roots)


def _call(source: Source, lifecycles: Lifecycles, event: Event, hook: str, roots: U64) -> None:
    numbers, positions = partitions_of(roots).tolist(), positions_of(roots).tolist()
    try:
        for number, position in zip(numbers, positions, strict=True):
            lifecycles.each_segment(hook, event, (source.partitions[number].name, position))
    except BaseException as error:
        raise Failure(hook.replace("_", "-"), contained(error)) from error
