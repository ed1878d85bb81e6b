"""ROUTE, ASSIGN_WINDOWS: where the segments of a batch go, and what they change in windows.

Routing comes before the batch changes any state. Invariant: a segment that failed or is to be
retried leaves no trace in windows, or its replay would count twice or not at all.
"""

from __future__ import annotations

from onyx.flow.routed import Routed
from onyx.program.assign import assign
from onyx.program.keeping import keep_changes
from onyx.program.prepare import prepare
from onyx.program.program import Program
from onyx.program.route import route as route_batch
from onyx.program.streams.apply import join_batch, look
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.work import Work
from onyx.task.table import ADVANCED, Answer


def route(program: Program, allocation: Allocation, work: Work) -> Answer:
    """Route the leaves of the batch.

    Raises:
        Failure: a segment has failed, and nothing takes care of it.
    """
    if program.windowed is not None and work.leaves is not None:
        work.prepared = prepare(program, work.leaves)
    if program.streams is not None:
        look(program.streams, work)
    if program.entry.stage is not None and not work.own and work.leaves is not None:
        work.routed = Routed({})  # to the stage: only what that makes goes further
        return ADVANCED
    route_batch(program, allocation.group_checks, work)
    return ADVANCED


def assign_windows(program: Program, allocation: Allocation, work: Work) -> Answer:
    """Segments that were not applied before change the state of their windows. What fires is
    carried out, though nothing of it is sent before it is durable. What a function with
    state or a processor has changed counts from now on."""
    if allocation.windowing is None:
        return ADVANCED
    if program.windowed is not None:
        assign(program, allocation.windowing, work)
        return ADVANCED
    if program.streams is not None:
        with allocation.windowing.calls.failures():
            join_batch(program, allocation.windowing, work)
        return ADVANCED
    keep_changes(allocation.windowing, work)
    if program.keyed is not None and work.leaves is not None:
        allocation.windowing.keyed.trim()
    return ADVANCED
