"""LOOK_UP, APPLY_FN, AFTER_APPLY_FN: the user's function or processor makes leaves of the batch."""

from __future__ import annotations

from onyx.codec.refusals import refuse
from onyx.program.apply import apply
from onyx.task.channels.edges import Edges
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.work import Work
from onyx.task.stateful.upkeep import make_answers_durable
from onyx.task.table import ADVANCED, WAITING, Answer


def look_up(runtime: Runtime, allocation: Allocation, work: Work) -> Answer:
    """Wait for what another task keeps for the batch, unless its leaves are there already."""
    lookups, batch = allocation.lookups, work.batch
    if lookups is None or batch is None or work.leaves is not None or lookups.are_there(batch):
        return ADVANCED
    make_answers_durable(runtime, allocation)
    return WAITING


def apply_fn(runtime: Runtime, allocation: Allocation, work: Work) -> Answer:
    """Call the function, unless the leaves were kept from the last allocation version."""
    source, kept = runtime.source, work.leaves is not None
    program, keeper = runtime.program, allocation.keeper
    examined = source is None or source.examined
    if keeper is None:
        apply(program, work, examined)
    else:
        keeper.operator.apply(work, examined, allocation.answering)
        if allocation.edges is not None:
            _settle(allocation.edges, keeper.operator.moves, work)
    if not kept:
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
