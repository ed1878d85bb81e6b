"""What follows from the number of the partition in a root: which peer answers for it in this
allocation version (`Owners`), whether its tree begins with a request, and where it begins
(`RequestTrees`).

Trees of requests are those of inputs that take requests, and those that a task with state begins
for what such inputs alone have given it. What a window emits belongs to no request, and what
several kinds of inputs have given cannot be separated behind a state: there a failure ends the job,
as it does without requests.
"""

from __future__ import annotations

import numpy as np

from onyx.base.runs import Numbers, array_of
from onyx.flow.batch import Mask
from onyx.flow.dead_letters import Origin
from onyx.ids import JobId, TaskName
from onyx.ledger.lineage import END_PARTITION, PARTITION_SHIFT, POSITIONS_MAX, cut, partitions_of
from onyx.model.job import Job
from onyx.model.requests import requested_tasks
from onyx.replica.jobs import rank_of
from onyx.replica.state import Replica
from onyx.task.channels.wiring import Site


class Owners:
    """Made when the job is ready, so every partition is registered.

    Those of inputs are dealt in runs (`replica.jobs`). Those of tasks with state are
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


class RequestTrees:
    """Made when the job is ready, so every partition is registered. Implements
    `program.outcomes.Answering`."""

    def __init__(self, replica: Replica, job_id: JobId, job: Job) -> None:
        registered = replica.partitions(job_id)
        self._at_once: dict[int, bool] = {}
        """Whether the first failure is the last, by the number of a partition of requests."""
        for task, at_once in requested_tasks(job).items():
            its = registered.get(TaskName(task))
            if its is not None:
                self._at_once |= dict.fromkeys(range(its.first, its.first + its.count), at_once)
        self._numbers = np.array(sorted(self._at_once), dtype=np.uint64)
        self.any = bool(self._at_once)
        self._sources = {its.first: (task, its.count) for task, its in registered.items()}

    def among(self, roots: Numbers) -> Mask:
        """Which of these roots are of requests."""
        found: Mask = np.isin(partitions_of(array_of(roots)), self._numbers)
        return found

    def at_once(self, root: int) -> bool:
        """Whether the first failure of a segment is its last (`onFailure: answer`)."""
        return self._at_once.get(root >> PARTITION_SHIFT, False)

    def origin(self, root: int) -> Origin | None:
        """The source that has registered the partition."""
        number = root >> PARTITION_SHIFT
        for first, (task, count) in self._sources.items():
            if first <= number < first + count:
                return Origin(task, number - first, root & (POSITIONS_MAX - 1))
        return None
