"""What functions give back for trees that are open, as their acker keeps it.

It is sent to the input before the completion of the tree. What belongs to an attempt that never
completes stays here until it is the oldest and there is no room.
"""

from __future__ import annotations

import numpy as np

from onyx.ids import AllocationVersion, JobId
from onyx.ledger.returns import Trees, add_tree
from onyx.runs import Numbers, Run, array_of
from onyx.task.acking.owners import Owners
from onyx.task.channels.wiring import Site
from onyx.transport.interface import Transport

TREES_MAX = 100_000


class Returning:
    """Not thread-safe."""

    def __init__(self, transport: Transport, job: JobId, version: AllocationVersion) -> None:
        self._transport = transport
        self._job = job
        self._version = version
        self._trees: Trees = {}
        self._unsent: list[tuple[Site, Trees]] = []

    def add(self, trees: Trees) -> None:
        """Something is given back for trees."""
        for root, parts in trees.items():
            add_tree(self._trees, root, parts)
        while len(self._trees) > TREES_MAX:
            del self._trees[next(iter(self._trees))]

    def complete(self, roots: Numbers, owners: Owners) -> None:
        """These trees are complete: what was given back for them goes to their inputs."""
        if not self._trees:
            return
        found = sorted(root for root in self._trees if _is_among(root, roots))
        for site, mine in owners.split(np.array(found, dtype=np.uint64)):
            roots_of_site = array_of(mine).tolist()
            self._unsent.append((site, {root: self._trees[root] for root in roots_of_site}))
        for root in found:
            del self._trees[root]

    def send(self) -> bool:
        """Send what is to be sent; False if somebody does not take it now."""
        while self._unsent:
            site, trees = self._unsent[0]
            if not self._transport.send_returns(
                site.group, self._job, self._version, site.peer, trees, to_acker=False
            ):
                return False
            del self._unsent[0]
        return True


def _is_among(root: int, roots: Numbers) -> bool:
    """Whether a root is one of these, which rise."""
    if isinstance(roots, Run):
        return roots.first <= root < roots.end
    at = int(np.searchsorted(roots, np.uint64(root)))
    return at < len(roots) and int(roots[at]) == root
