"""Which trees a peer works on: all that it was sent and has not passed on, written or acked.

So those who began the trees do not begin them again while somebody works on them, however long that
takes. Read from another thread, because that of the task may be in a function for an hour. Segments
move meanwhile, always in one direction, so the parts are read in that direction: what moves
between two looks is seen twice rather than not at all. What one report misses is in the next.

What a link has not sent yet is in no report: a connection that is away for so long has lost it.
"""

from __future__ import annotations

from onyx.base.runs import Numbers
from onyx.flow.batch import Batch
from onyx.ids import AllocationVersion
from onyx.ledger.acker import split_by_acker
from onyx.task.acking.owners import Owners
from onyx.task.batch_task import BatchTask
from onyx.task.channels.wiring import Site, Wiring
from onyx.task.parts.work import Work
from onyx.task.task import Task
from onyx.transport.interface import Partial


def held_roots(task: Task) -> list[Numbers]:
    """Columns of roots, in any order and repeated; none before the task is wired."""
    if not isinstance(task, BatchTask) or not task.wired:
        return []
    allocation, sink = task.allocation, task.runtime.sink
    columns = allocation.inbox.waiting_roots() + _in_work(task.work)
    if allocation.edges is not None:
        columns += allocation.edges.waiting_roots()
    columns += allocation.outbox.waiting_roots()
    if allocation.keeper is not None:
        columns += allocation.keeper.waiting_roots()
    if sink is not None:
        columns += sink.waiting_roots()
    columns += [roots for _, roots, _ in tuple(allocation.retries)]
    return columns + allocation.acks.waiting_roots()


def _in_work(work: Work) -> list[Numbers]:
    batches: list[Batch | Partial | None] = [*work.others, *work.partials]
    batches += tuple(work.pieces.waiting)
    batches.append(work.batch)
    return [each.roots for each in batches if each is not None and each.roots is not None]


def holds_for(task: Task, version: AllocationVersion, roots: Numbers) -> None:
    """Somebody works on these trees, some of which this task began in this version."""
    if not isinstance(task, BatchTask) or task.version != version:
        return
    keeper, source = task.allocation.keeper, task.runtime.source
    if keeper is not None:
        keeper.emissions.holds.add(roots)
    elif source is not None:
        source.holds.add(roots)


def to_tell(owners: Owners, wiring: Wiring | None, roots: Numbers) -> list[tuple[Site, Numbers]]:
    """Who has to know of increasing roots that somebody works on: their owners, and the ackers.

    Args:
        wiring: knows the ackers; None where an acker itself tells.
    """
    told = owners.split(roots)
    if wiring is not None:
        parts = split_by_acker(roots, roots, len(wiring.ackers))
        told += [(wiring.ackers[index], part) for index, part, _ in parts]
    return told
