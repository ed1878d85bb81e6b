"""A processor over a batch.

A segment that fails is routed as others are: one that does not fit the schema of the task, one of
which the processor says so, and one with which it raises, if something takes care of that. What it
raises otherwise ends the job, or restarts the peer where a lifecycle says so.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np

from onyx.codec.values import size_bytes
from onyx.errors import UserFunctionError
from onyx.flow.batch import Batch, Indices, as_dicts, as_given, take
from onyx.flow.leaves import Leaves
from onyx.flow.segment import SegmentFailure
from onyx.functions.returning import LOST, Returned, collecting, lost
from onyx.ledger.applied import repeats_of
from onyx.operators.context import OperatorContext
from onyx.operators.processor.calls import Calls, outbox_of
from onyx.operators.processor.definition import Processing
from onyx.operators.processor.processor_states import ProcessorStates
from onyx.operators.processor.snapshot import ProcessorSnapshot
from onyx.operators.processor.turns import Takes
from onyx.processors import Context
from onyx.program.batch_work import BatchWork, fit
from onyx.program.failure import Failure
from onyx.program.operator import keep_made, with_repeats
from onyx.program.outcomes import NOBODY, Answering
from onyx.program.phases import Phase
from onyx.program.program import Program


class ProcessorOperator(ProcessorStates):
    """A task with a processor."""

    def apply(self, work: BatchWork, examined: bool, answering: Answering = NOBODY) -> None:
        """Have the segments of the batch processed that have not been applied. The batch is then
        what the processor has taken.

        Args:
            answering: says which segments requests have brought; what fails of these is the answer.
        """
        batch = work.batch
        if batch is None or work.leaves is not None:
            return
        with self.failures():
            self._apply(work, batch, answering)

    def change(self, work: BatchWork) -> None:
        """What the processor has changed counts from now on."""
        keep_made(self.keeper, work)

    def _apply(self, work: BatchWork, batch: Batch, answering: Answering) -> None:
        program, keys = self.program, self.program.job.ack_returns
        unapplied = self.keeper.unapplied(batch)
        where = np.arange(len(batch)) if unapplied is None else np.flatnonzero(unapplied)
        items, kept, misfits = _items(program, batch, where)
        failures = with_repeats(batch, misfits)
        work.returned = lost(keys, unapplied)
        if items:
            try:
                with collecting(keys, len(kept), size_bytes) as returned:
                    ordinal = self.its.ordinal(batch.upstream)
                    worked = self.process(ordinal, items, _takes(program, batch, answering))
            except UserFunctionError as error:
                detail = f"{error} (the batch has {len(where)} segments)"
                raise Failure(Phase.APPLY_FN.value, error, detail, len(where)) from error
            work.made = worked.made
            returned += [Returned(at, key, None, LOST) for at in worked.unfinished for key in keys]
            work.returned += [each._replace(at=int(kept[each.at])) for each in returned]
            failed = [(int(kept[at]), error) for at, error in worked.failed]
            failures = with_repeats(batch, sorted([*misfits, *failed], key=itemgetter(0)))
            if worked.taken < len(kept):
                failures = self._leave(work, batch, kept[worked.taken :], failures)
        if program.observed:
            program.event["results"] = work.made_as_given
        if work.batch is not None:
            work.leaves = Leaves([], np.empty(0, dtype=np.intp), None, failures)

    def _leave(
        self, work: BatchWork, batch: Batch, left: Indices, failures: list[SegmentFailure]
    ) -> list[SegmentFailure]:
        """These segments stay in the inbox, and are no part of the batch any more; what has failed,
        by its place in what is left of that."""
        same = repeats_of(batch.roots, batch.ids, left)
        left = np.union1d(left, [*same]).astype(np.intp) if same else left
        work.left = batch.take(left)
        done = np.delete(np.arange(len(batch)), left)
        if len(done):
            work.batch = batch.take(done)
            gone = frozenset(left.tolist()) if work.returned else frozenset()
            work.returned = [
                each._replace(at=int(np.searchsorted(done, each.at)))
                for each in work.returned
                if each.at not in gone
            ]
            return [(int(np.searchsorted(done, at)), error) for at, error in failures]
        # Nothing is to be routed. What it has made without taking anything, it has made of nothing.
        for shard, segments in work.made:
            self.keeper.emit(shard, segments)
        work.batch, work.made, work.returned = None, [], []
        return []


def _takes(program: Program, batch: Batch, answering: Answering) -> Takes:
    """What takes care of a segment that fails. If nothing does, the job ends without any search for
    it."""
    conditions = program.routes.own_conditions
    anything = (
        answering.any
        or program.entry.dead_letter is not None
        or (conditions is not None and bool(conditions.exceptional))
    )
    return Takes(anything, batch.roots is not None)


def _items(
    program: Program, batch: Batch, where: Indices
) -> tuple[list[Any], Indices, list[SegmentFailure]]:
    """What the processor gets of a batch: segments, or one record batch; which segments these are;
    and what does not fit."""
    if not len(where):
        return [], where, []
    segments = batch.segments if len(where) == len(batch) else take(batch.segments, where)
    fitting, rows, failures = fit(program, segments)
    misfits: list[SegmentFailure] = [(int(where[at]), error) for at, error in failures]
    kept = where if rows is None else where[rows]
    if program.takes != "arrow":
        return as_dicts(fitting), kept, misfits
    return [as_given(fitting)] if len(fitting) else [], kept, misfits


def processor_operator(its: Processing, context: OperatorContext) -> ProcessorOperator:
    """The processor, begun. What it had saved comes to it afterwards.

    Raises:
        UserFunctionError: it cannot be made, or its `init` has raised.
    """
    program = context.program
    given = Context(
        job_id=program.job_id,
        task=program.task,
        index=context.number,
        processors=context.operators,
        parents=tuple(each.task for each in its.parents),
    )

    def begin() -> Calls:
        outbox = outbox_of(program.entry.batch_format)
        calls = Calls(its.made(program.event["params"]), its.name, outbox, given, program.clock)
        calls.init()
        return calls

    snapshot = ProcessorSnapshot(context.own, context.holder)
    clock, ended, durable = program.clock, context.ended, context.durable
    return ProcessorOperator(its, begin, snapshot, context.own, clock, ended, durable)
