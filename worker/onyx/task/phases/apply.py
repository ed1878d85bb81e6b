"""LOOK_UP to ASSIGN_WINDOWS: the user's function makes leaves of the batch, which are routed, and
change the state of the task.

Routing comes before the batch changes any state. Invariant: a segment that failed or is to be
retried leaves no trace in windows, or its replay would count twice or not at all.

Windows take a partial (`channels/combining`) as a whole or not at all: some of its segments may
have been applied before, or have come too late, and nobody can say what they have given to a sum.
Then those that were not applied are read again, and come as segments; event time stands still until
they have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from onyx.base.runs import Numbers, taken
from onyx.codec.refusals import refuse
from onyx.codec.values import decode_records
from onyx.flow.routed import Routed
from onyx.functions.retry import RETRIES_MAX
from onyx.keystate.records import StatesRecord
from onyx.ledger.applied import repeats_of
from onyx.program.batch_work import apply
from onyx.program.batch_work import route as route_batch
from onyx.program.failure import FirstFailures
from onyx.program.program import goes_on_in_trees
from onyx.replica.commands.signal_failing import SignalFailing
from onyx.replica.state import NOTHING
from onyx.task.channels.edges import Edges
from onyx.task.parts import Allocation, Assignment, Runtime, Work
from onyx.task.phases.send import ask_again
from onyx.task.sink.sink import Sink
from onyx.task.state.keeper import StateKeeper
from onyx.task.table import ADVANCED, WAITING, Answer
from onyx.task.upkeep import make_answers_durable, make_durable
from onyx.transport.interface import Partial


def look_up(runtime: Runtime, allocation: Allocation, work: Work) -> Answer:
    """Wait for what another task keeps for the batch, unless its leaves are there already."""
    lookups, batch = allocation.lookups, work.batch
    if lookups is None or batch is None or work.leaves is not None or lookups.are_there(batch):
        return ADVANCED
    make_answers_durable(runtime, allocation)
    return WAITING


def apply_fn(runtime: Runtime, allocation: Allocation, work: Work) -> Answer:
    """Call the function, unless the leaves were kept from the last allocation version."""
    source, were_there = runtime.source, work.leaves is not None
    program, keeper = runtime.program, allocation.keeper
    examined = source is None or source.examined
    if keeper is None:
        apply(program, work, examined)
    else:
        keeper.operator.apply(work, examined, allocation.answering)
        if allocation.edges is not None:
            _settle(allocation.edges, keeper.operator.moves, work)
    if not were_there:
        work.timer.applied()
    return ADVANCED


def _settle(edges: Edges, moves: int, work: Work) -> None:
    """What an operator has left goes back to its edge; control items behind what it took go on with
    the batch."""
    if work.left is not None:
        edges.settle(work.left.upstream, work.left, moves, took=work.batch is not None)
    elif work.batch is not None:
        edges.settle(work.batch.upstream, None, moves, took=True)
    if not work.pieces.waiting:
        work.controls += edges.take_controls()


def after_apply_fn(runtime: Runtime, work: Work) -> Answer:
    """A hook may have changed segments: they are checked again."""
    program = runtime.program
    if work.leaves is not None and program.lifecycles.has("after_apply_fn"):
        program.lifecycles.merge("after_apply_fn", program.event)
        work.leaves = refuse(work.leaves)
    return ADVANCED


def route(runtime: Runtime, allocation: Allocation, work: Work) -> Answer:
    """Route the leaves of the batch.

    Raises:
        Failure: a segment has failed, and nothing takes care of it; or all have, on every peer of
            the task.
    """
    program, sink = runtime.program, runtime.sink
    if allocation.keeper is not None:  # before it is routed: what a state refuses has failed
        allocation.keeper.operator.look(work)
    if program.entry.stage is not None and not work.own and work.leaves is not None:
        if sink is not None and program.routes.handles_failures:
            _leave_out_misfits(sink, work)
        if not work.leaves.failures:
            work.routed = Routed({})  # to the stage: only what that makes goes further
            return ADVANCED
    route_batch(program, allocation.group_checks, work, allocation.answering)
    if program.first_failures is not None:
        _report_first_failures(runtime.assignment, program.first_failures)
    return ADVANCED


def _report_first_failures(assignment: Assignment, first: FirstFailures) -> None:
    """Tell the other peers of the task when all segments of this one have failed, and when one has
    not after all.

    Raises:
        Failure: those of all others that have any have failed too.
    """
    if not first.are_enough and not first.reported:
        return
    run, task, me = assignment.latest_run(), assignment.task, assignment.peer
    if first.are_enough:
        said, peers = run.failing.get(task, NOTHING), run.allocation.get(task, ())
        registered = assignment.services.replica().partitions(assignment.job_id).get(task)
        having = len(peers) if registered is None else min(registered.count, len(peers))
        if sum(each in said or each == me for each in peers) >= max(having, 1):
            raise first.failure()
    if first.are_enough != first.reported:
        first.reported = first.are_enough
        assignment.propose(SignalFailing(assignment.job_id, task, me, over=not first.reported))


def _leave_out_misfits(sink: Sink, work: Work) -> None:
    """Segments that the stage cannot have have failed."""
    assert work.batch is not None, "there are leaves"
    assert work.leaves is not None, "asked before"
    misfits = sink.misfits(work.batch.upstream, work.leaves.segments)
    if misfits:
        work.leaves = work.leaves.without(misfits)


def assign_windows(runtime: Runtime, allocation: Allocation, work: Work) -> Answer:
    """Segments that were not applied before change the state of the task. What fires is carried
    out, though nothing of it is sent before it is durable; nor is what goes on in the tree of its
    segment, for which the batch waits here."""
    program, keeper = runtime.program, allocation.keeper
    if keeper is None:
        return ADVANCED
    if work.kept:  # it has changed the state in an earlier step
        return ADVANCED if make_durable(runtime, allocation, keeper) else WAITING
    if work.partials:
        program.metrics.batch(sum(map(len, work.partials)), 0)
        merge_partials(keeper, work, partial(ask_again, allocation))
    keeper.operator.change(work)
    # What a state has made of them must not be seen before it is durable: a crash would take it
    # back, as it would an emission.
    if work.batch is not None and goes_on_in_trees(program):
        work.kept = True
        return ADVANCED if make_durable(runtime, allocation, keeper) else WAITING
    return ADVANCED


# --- states in place of segments ----------------------------------------------------------------

AskAgain = Callable[[Numbers, int], None]
"""Has roots read again, each at most so many times."""


def merge_partials(keeper: StateKeeper, work: Work, ask_again: AskAgain) -> None:
    """Merge what came with the batch."""
    partials, work.partials = work.partials, []
    for each in partials:
        _merge(keeper, each, ask_again)


def _merge(keeper: StateKeeper, folded: Partial, ask_again: AskAgain) -> None:
    unapplied = keeper.unapplied(folded)
    records = [each for each in decode_records(folded.states) if isinstance(each, StatesRecord)]
    if unapplied is None and keeper.operator.takes(records):
        keeper.fresh(folded, ())
        keeper.operator.merge(records)
        keeper.changed(len(folded))
        keeper.withhold(folded.roots, folded.ids)
        return
    # What was applied is acked as it is; the rest is asked for again, and comes as segments.
    again = np.ones(len(folded), np.bool_) if unapplied is None else unapplied
    again[[*repeats_of(folded.roots, folded.ids, again.nonzero()[0])]] = True
    applied, left = (~again).nonzero()[0], again.nonzero()[0]
    keeper.withhold(taken(folded.roots, applied), taken(folded.ids, applied))
    if len(left):
        keeper.wait_for(taken(folded.roots, left), taken(folded.ids, left))
        ask_again(taken(folded.roots, left), RETRIES_MAX)
