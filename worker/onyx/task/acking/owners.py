"""Which peer answers for a root: the owner of its partition in this allocation version."""

from __future__ import annotations

from onyx.ids import JobId, TaskName
from onyx.ledger.lineage import END_PARTITION, PARTITION_SHIFT, cut
from onyx.replica.state import Replica
from onyx.runs import Numbers
from onyx.task.channels.wiring import Site


class Owners:
    """Made when the job is ready, so every partition is registered.

    Partitions are dealt to the peers of their task by the order of slots: the index of a partition
    within the task modulo the number of peers.
    """

    def __init__(
        self,
        replica: Replica,
        job: JobId,
        sources: tuple[tuple[TaskName, tuple[Site, ...]], ...],
    ) -> None:
        registered = replica.partitions(job)
        self._sources = sorted(
            ((registered[task].first, registered[task].count, sites) for task, sites in sources),
            key=lambda each: each[0],
        )
        self._everyone = [site for _, _, sites in self._sources for site in sites]

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
        for first, count, sites in self._sources:
            if first <= number < first + count:
                return sites[(number - first) % len(sites)]
        raise KeyError(number)
