"""Retries that flow conditions ask for: whoever owns a root is asked to read it again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onyx.flow.routed import Routed
from onyx.ledger.hop import Hop
from onyx.runs import U64, Numbers, taken
from onyx.task.parts.allocation import Allocation
from onyx.transport.interface import Transport


def acked(
    allocation: Allocation, roots: Numbers, made: Hop, routed: Routed
) -> tuple[Numbers, Numbers]:
    """Roots and values to ack of a batch; a root that is to be replayed is not acked, so that its
    tree stays open."""
    values, retries = made.values, routed.retries
    if retries:
        _ask_for_retries(allocation, taken(roots, retries), routed.retries_max)
        rows = np.arange(len(roots)) if made.reported is None else made.reported
        wanted = np.isin(rows, retries, invert=True)
        return taken(roots, rows[wanted]), taken(values, wanted)
    return (roots if made.reported is None else taken(roots, made.reported)), values


def _ask_for_retries(allocation: Allocation, roots: U64, retries_max: Sequence[int]) -> None:
    """Have the owners of these roots read them again, each at most so many times."""
    owners = allocation.owners
    assert owners is not None, "no batch is read before the job is ready"
    limits = np.array(retries_max)
    for limit in sorted(set(retries_max)):
        parcels = owners.split(np.unique(roots[limits == limit]))
        allocation.retries.extend((site, part, limit) for site, part in parcels)


def send_retries(transport: Transport, allocation: Allocation) -> bool:
    """Hand them to the transport; False if it does not take all of them now."""
    wiring = allocation.wiring
    while allocation.retries:
        site, roots, limit = allocation.retries[-1]
        if not transport.send_completions(
            site.group, wiring.job, wiring.version, site.peer, roots, limit
        ):
            return False
        allocation.retries.pop()
    return True
