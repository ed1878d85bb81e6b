"""Retries that functions and flow conditions ask for: whoever owns a root is asked to read it
again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onyx.base.runs import Numbers, array_of, taken
from onyx.flow.batch import Batch
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Routed
from onyx.ledger.hop import Hop
from onyx.task.parts.allocation import Allocation
from onyx.transport.interface import Transport


def acked(
    allocation: Allocation, roots: Numbers, made: Hop, routed: Routed
) -> tuple[Numbers, Numbers]:
    """Roots and values to ack of a batch; a root that is to be replayed is not acked, so that its
    tree stays open."""
    values, retries = made.values, routed.retries
    if retries:
        ask_for_retries(allocation, roots, routed)
        rows = np.arange(len(roots)) if made.reported is None else made.reported
        wanted = np.isin(rows, retries, invert=True)
        return taken(roots, rows[wanted]), taken(values, wanted)
    return (roots if made.reported is None else taken(roots, made.reported)), values


def without(batch: Batch, leaves: Leaves, failed: Sequence[int]) -> tuple[Batch, Leaves]:
    """The batch of an output without the segments that are to be read again, or that have gone
    elsewhere. Those have no leaves."""
    kept = np.delete(np.arange(len(batch)), failed)
    parents = np.arange(len(leaves)) if leaves.parents is None else leaves.parents
    left = Leaves(leaves.segments, np.searchsorted(kept, parents), leaves.child_index)
    return batch.take(kept), left


def ask_again(allocation: Allocation, roots: Numbers, retries_max: int) -> None:
    """Have the owners of some roots read them again, each at most so many times."""
    owners = allocation.owners
    assert owners is not None, "no batch is read before the job is ready"
    parcels = owners.split(np.unique(array_of(roots)))
    allocation.retries.extend((site, part, retries_max) for site, part in parcels)


def ask_for_retries(allocation: Allocation, roots: Numbers, routed: Routed) -> None:
    """Have some roots of a batch read again, as routing has decided."""
    _say_why(allocation, roots, routed)
    wanted, limits = taken(roots, routed.retries), np.array(routed.retries_max)
    for limit in sorted(set(routed.retries_max)):
        ask_again(allocation, taken(wanted, limits == limit), limit)


def _say_why(allocation: Allocation, roots: Numbers, routed: Routed) -> None:
    """Tell the owners of roots why these are to be read again: whoever waits asks for that."""
    if not routed.retry_notes:
        return
    owners, of_roots = allocation.owners, array_of(roots)
    assert owners is not None, "no batch is read before the job is ready"
    trees = {int(of_roots[at]): parts for at, parts in routed.retry_notes.items()}
    for site, mine in owners.split(np.array(sorted(trees), dtype=np.uint64)):
        its = {root: trees[root] for root in array_of(mine).tolist()}
        allocation.reasons.append((site, its))


def send_retries(transport: Transport, allocation: Allocation) -> bool:
    """Hand them to the transport, what is said of them first; False if it does not take all of
    them now."""
    wiring = allocation.wiring
    while allocation.reasons:
        site, trees = allocation.reasons[0]
        if not transport.send_returns(
            site.group, wiring.job, wiring.version, site.peer, trees, to_acker=False
        ):
            return False
        del allocation.reasons[0]
    while allocation.retries:
        site, roots, limit = allocation.retries[-1]
        if not transport.send_completions(
            site.group, wiring.job, wiring.version, site.peer, roots, limit
        ):
            return False
        allocation.retries.pop()
    return True
