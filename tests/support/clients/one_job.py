"""A client of a cluster that has one job, as its log in memory says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from immutables import Map
from tests.support.log.memory_log import MemoryLog
from tests.support.log.runs import altered

from onyx.client.reader import JobReader
from onyx.history.replicas import Replicas
from onyx.ids import JobId, PeerId, Position, TaskName
from onyx.model.job import Job
from onyx.replica.state import Replica


class OneJob(JobReader):
    """Nobody has written its entries: this is its manifest, and these peers work on its tasks."""

    def __init__(
        self, log: MemoryLog, job_id: JobId, job: Job, peers: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__(log.client(), Replicas(log.client(), "balanced"))
        self._job = job
        allocation = {TaskName(task): tuple(map(PeerId, each)) for task, each in peers.items()}
        known = Replica(version=Position(1), jobs=(job_id,))
        self._replica = altered(known, job_id, allocation=Map(allocation))

    def replica(self, at: Position | None = None) -> Replica:
        return self._replica

    def job(self, job: JobId) -> Job:
        return self._job
