"""Which peer answers for a root: the owner of its partition in this allocation version."""

from __future__ import annotations

from onyx.base.runs import Numbers
from onyx.ids import JobId, TaskName
from onyx.ledger.lineage import END_PARTITION, PARTITION_SHIFT, cut
from onyx.replica.dealt_partitions import rank_of
from onyx.replica.state import Replica
from onyx.task.channels.wiring import Site


class Owners:
    """Made when the job is ready, so every partition is registered.

    Those of inputs are dealt in runs (`replica.dealt_partitions`). Those of tasks with state are
    their shards, which are dealt in turn by the order of slots (`recovery.state.shards_of_rank`).
    """

    def __init__(
        self,
        replica: Replica,
        job: JobId,
        sources: tuple[tuple[TaskName, tuple[Site, ...]], ...],
    ) -> None:
        registered = replica.partitions(job)
        inputs = frozenset(replica.spec(job).inputs)
        self._sources = sorted(
            (
                (registered[task].first, registered[task].count, sites, task in inputs)
                for task, sites in sources
            ),
            key=lambda each: each[0],
        )
        self._everyone = [site for _, _, sites, _ in self._sources for site in sites]

    def split(self, roots: Numbers) -> list[tuple[Site, Numbers]]:
        """Increasing roots, by the peer that gets their completions. Those of the END tree go to
        every input."""
        if len(self._everyone) == 1 and len(roots):
            return [(self._everyone[0], roots)]
        parcels: list[tuple[Site, Numbers]] = []
        for number, part in cut(roots, PARTITION_SHIFT):
            if number == END_PARTITION:
                parcels.extend((site, roots[part]) for site in self._everyone)
            else:
                parcels.append((self._owner(number), roots[part]))
        return parcels

    def _owner(self, number: int) -> Site:
        for first, count, sites, in_runs in self._sources:
            if first <= number < first + count:
                index, peers = number - first, len(sites)
                return sites[rank_of(index, count, peers) if in_runs else index % peers]
        raise KeyError(number)
