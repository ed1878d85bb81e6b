"""What functions give back for trees that are open, as their acker keeps it.

It is sent to the input before the completion of the tree. What belongs to an attempt that never
completes stays here until it is the oldest and there is no room. Then its values go, and who asked
for them reads why; what failed in it is kept ten times longer, for an answer must not say that it
was processed.
"""

from __future__ import annotations

import numpy as np

from onyx.base.runs import Numbers, Run, array_of
from onyx.ids import AllocationVersion, JobId
from onyx.ledger.returns import Trees, add_tree, without_values
from onyx.task.acking.owners import Owners
from onyx.task.channels.wiring import Site
from onyx.transport.interface import Transport

TREES_MAX = 100_000
"""Trees whose values are kept."""
BARE_MAX = 10 * TREES_MAX
"""Trees of which it is kept what failed, and that values are gone."""
GONE = f"more than {TREES_MAX:,} trees with values were open at once"


class Returning:
    """Not thread-safe."""

    def __init__(self, transport: Transport, job: JobId, version: AllocationVersion) -> None:
        self._transport = transport
        self._job = job
        self._version = version
        self._trees: Trees = {}
        self._bare: Trees = {}
        self._unsent: list[tuple[Site, Trees]] = []

    def add(self, trees: Trees) -> None:
        """Something is given back for trees."""
        for root, parts in trees.items():
            add_tree(self._trees, root, parts)
        while len(self._trees) > TREES_MAX:
            root = next(iter(self._trees))
            add_tree(self._bare, root, without_values(self._trees.pop(root), GONE))
        while len(self._bare) > BARE_MAX:
            del self._bare[next(iter(self._bare))]

    def complete(self, roots: Numbers, owners: Owners) -> None:
        """These trees are complete: what was given back for them goes to their inputs."""
        if not self._trees:
            return
        found: Trees = {}
        for trees in (self._bare, self._trees):
            for root in [each for each in trees if _is_among(each, roots)]:
                add_tree(found, root, trees.pop(root))
        for site, mine in owners.split(np.array(sorted(found), dtype=np.uint64)):
            self._unsent.append((site, {root: found[root] for root in array_of(mine).tolist()}))

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
