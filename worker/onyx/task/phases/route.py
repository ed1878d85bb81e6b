"""ROUTE, ASSIGN_WINDOWS: where the segments of a batch go, and what they change in windows.

Routing comes before the batch changes any state. Invariant: a segment that failed or is to be
retried leaves no trace in windows, or its replay would count twice or not at all.
"""

from __future__ import annotations

from functools import partial

from onyx.flow.routed import Routed
from onyx.program.program import Program, goes_on_in_trees
from onyx.program.route import route as route_batch
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.work import Work
from onyx.task.phases.retries import ask_again
from onyx.task.sink.sink import Sink
from onyx.task.stateful.partials import merge_partials
from onyx.task.stateful.upkeep import make_durable
from onyx.task.table import ADVANCED, WAITING, Answer


def route(program: Program, sink: Sink | None, allocation: Allocation, work: Work) -> Answer:
    """Route the leaves of the batch.

    Raises:
        Failure: a segment has failed, and nothing takes care of it.
    """
    if allocation.keeper is not None:
        allocation.keeper.operator.look(work)
    if program.entry.stage is not None and not work.own and work.leaves is not None:
        if sink is not None and program.routes.handles_failures:
            _leave_out_misfits(sink, work)
        if not work.leaves.failures:
            work.routed = Routed({})  # to the stage: only what that makes goes further
            return ADVANCED
    route_batch(program, allocation.group_checks, work, allocation.answering)
    return ADVANCED


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
    if work.kept:
        return ADVANCED if make_durable(runtime, allocation, keeper) else WAITING
    if work.partials:
        program.metrics.batch(sum(map(len, work.partials)), 0)
        merge_partials(keeper, work, partial(ask_again, allocation))
    keeper.operator.change(work)
    if work.batch is not None and goes_on_in_trees(program):
        work.kept = True
        return ADVANCED if make_durable(runtime, allocation, keeper) else WAITING
    return ADVANCED
