"""WRITE_BATCH: destinations take what was sent, and plugins flush if that was asked for."""

from __future__ import annotations

from onyx.flow.batch import Batch
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Routed
from onyx.ledger.hop import split_values
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.work import Work
from onyx.task.phases.retries import ask_for_retries, send_retries, without
from onyx.task.sink.sink import Sink
from onyx.task.table import ADVANCED, WAITING, Answer
from onyx.task.windowed.upkeep import make_answers_durable


def write_batch(runtime: Runtime, allocation: Allocation, work: Work) -> Answer:
    """Wait until every destination has taken its part, and flush the plugin if that was asked for:
    here, because a phase that the store refuses is done again, and nothing is written twice."""
    if runtime.sink is not None and allocation.flush_wanted:
        runtime.sink.flush()
        allocation.flush_wanted = False
    more = _more_follows(runtime, allocation, work)
    sent = not allocation.retries or send_retries(runtime.services.transport, allocation)
    if not (sent and allocation.outbox.drain(more)):
        work.timer.refused(runtime.metrics)
        make_answers_durable(runtime, allocation)
        return WAITING
    work.timer.written(runtime.metrics)
    return ADVANCED


def _more_follows(runtime: Runtime, allocation: Allocation, work: Work) -> bool:
    """Whether another batch is about to be made: one that is whole mostly has a successor, and one
    that waits will be read next."""
    whole = runtime.sizing.segments_max
    if runtime.source is not None:
        return work.batch is not None and len(work.batch) >= whole
    return bool(work.pieces.waiting) or allocation.inbox.waiting_segments() >= whole


def write(sink: Sink, allocation: Allocation, batch: Batch, leaves: Leaves, routed: Routed) -> None:
    """Hand a batch to the plugin of an output, but for what is to be read again, and what goes
    elsewhere. Raises like `Sink.write`, and then the batch is to be written again."""
    apart = sorted({*routed.retries, *routed.parents_elsewhere()})
    _write(sink, allocation, *(without(batch, leaves, apart) if apart else (batch, leaves)))
    if not routed.retries:
        return
    assert batch.roots is not None, "what is not accounted for is not retried"
    ask_for_retries(allocation, batch.roots, routed)


def _write(sink: Sink, allocation: Allocation, batch: Batch, leaves: Leaves) -> None:
    if allocation.committing is not None:
        allocation.committing.write(batch, leaves)
        return
    windowing = allocation.windowing
    if windowing is None or batch.roots is None or batch.ids is None:
        sink.write(leaves.segments, batch.roots, batch.ids)
        return
    values, withheld = split_values(batch.ids)
    sink.write(leaves.segments, batch.roots, values)
    windowing.withhold(batch.roots, withheld)
