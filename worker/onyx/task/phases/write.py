"""WRITE_BATCH: destinations take what was sent, and plugins flush if that was asked for."""

from __future__ import annotations

import numpy as np

from onyx.errors import (
    Fenced,
    InvariantViolated,
    OutputFailed,
    StateError,
    Unavailable,
    WorkLost,
)
from onyx.flow.batch import Batch, chosen_by
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Routed
from onyx.ledger.hop import split_values
from onyx.program.outcomes import notes_of
from onyx.program.program import Program
from onyx.program.route import answer_or_raise
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.work import Work
from onyx.task.phases.retries import ask_for_retries, send_retries, without
from onyx.task.retrying.suspects import take_apart
from onyx.task.sink.sink import Sink
from onyx.task.stateful.upkeep import make_answers_durable
from onyx.task.table import ADVANCED, WAITING, Answer

_NOT_OF_SEGMENTS = (Unavailable, Fenced, WorkLost, OutputFailed, StateError, InvariantViolated)
"""Failures that are about no segment."""


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


def write(program: Program, sink: Sink, allocation: Allocation, work: Work) -> bool:
    """Hand a batch to the plugin of an output, but for what is to be read again, and what goes
    elsewhere. False: the plugin cannot write all of it, and it comes again segment by segment,
    because requests have brought some: what fails of these is their answer.

    Raises:
        Exception: as `Sink.write`. If it is Unavailable, the batch is to be written again.
    """
    batch, leaves, routed = work.batch, work.leaves, work.routed
    assert batch is not None, "asked before"
    assert leaves is not None, "asked before"
    assert routed is not None, "the phase before"
    try:
        _write_kept(sink, allocation, batch, leaves, routed)
    except _NOT_OF_SEGMENTS:
        raise
    except Exception as error:
        answering = allocation.answering
        if batch.roots is None or not answering.any or not answering.among(batch.roots).any():
            raise
        if len(batch) > 1:
            take_apart(work)
            return False
        answer_or_raise(program, batch, routed, error)
        routed.notes = notes_of(program, answering, batch, leaves, routed)
        nothing = Leaves(chosen_by(leaves.segments, np.zeros(len(leaves), np.bool_)))
        _write(sink, allocation, batch, nothing)
    return True


def _write_kept(
    sink: Sink, allocation: Allocation, batch: Batch, leaves: Leaves, routed: Routed
) -> None:
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
    keeper = allocation.keeper
    if keeper is None or batch.roots is None or batch.ids is None:
        sink.write(leaves.segments, batch.roots, batch.ids, leaves.parents)
        return
    values, withheld = split_values(batch.ids)
    sink.write(leaves.segments, batch.roots, values, leaves.parents)
    keeper.withhold(batch.roots, withheld)
