"""The ackers that one incarnation runs: one for each of its peers that is one, in each version.

Used by the group's thread; acks come on the threads of the transport.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.model.job import Job
from onyx.peer.work.task_threads import TaskThreads
from onyx.replica.state import Replica
from onyx.task.acking.acker import AckerTask
from onyx.task.acking.idle_timeout import idle_timeout_s
from onyx.task.acking.owners import Owners
from onyx.task.channels.wiring import sources_of
from onyx.task.services import Services
from onyx.telemetry.interface import NULL_TASK, TaskMetrics

ACKER_ORDER = 1_000_000
"""Behind every task: by then all acks of the round are there."""

Ackers = Mapping[tuple[JobId, AllocationVersion, PeerId], AckerTask]


class RunningAckers:
    """The ackers of one incarnation."""

    def __init__(
        self,
        group: GroupId,
        services: Services,
        threads: TaskThreads,
        job_of: Callable[[PeerId, JobId], Job | None],
    ) -> None:
        """`job_of` gives the job that a peer works on, as soon as its task has loaded it."""
        self._group = group
        self._services = services
        self._threads = threads
        self._job_of = job_of
        self._ackers: dict[tuple[JobId, AllocationVersion, PeerId], AckerTask] = {}

    @property
    def running(self) -> Ackers:
        """The ackers that run now."""
        return dict(self._ackers)

    def get(self, job: JobId, version: AllocationVersion, peer: PeerId) -> AckerTask | None:
        """The acker of a peer in a version; from any thread."""
        return self._ackers.get((job, version, peer))

    def ready(self, replica: Replica, job: JobId, version: AllocationVersion) -> None:
        """All peers of the job are ready, so every partition has an owner."""
        owners = Owners(replica, job, sources_of(replica, job))
        for (each, at, _), acker in self._ackers.items():
            if each == job and at == version:
                acker.ready(owners)

    def stop(self) -> None:
        """The incarnation ends."""
        for acker in self._ackers.values():
            acker.stopped = True

    def follow(self, replica: Replica) -> None:
        """An acker for each of our peers that is one; those of older versions end."""
        mine = replica.groups_index.get(self._group, ())
        wanted = {
            (job, AllocationVersion(replica.run(job).allocation_version), peer)
            for job in replica.jobs
            for peer in replica.run(job).ackers
            if peer in mine
        }
        for key in [key for key in self._ackers if key not in wanted]:
            self._ackers.pop(key).stopped = True
        for job, version, peer in sorted(wanted.difference(self._ackers)):
            acker = AckerTask(
                self._services.transport,
                self._services.clock,
                job,
                version,
                self._threads.wake_shared,
                partial(self._idle_timeout_s, peer, job),
                partial(self._metrics, replica, peer, job),
            )
            self._ackers[job, version, peer] = acker
            self._threads.run_shared(acker, lambda: None, ACKER_ORDER)

    def _metrics(self, replica: Replica, peer: PeerId, job: JobId) -> TaskMetrics:
        """Metrics of the task on which the peer works, which stays the same in one version."""
        found = self._job_of(peer, job)
        tasks = replica.run(job).allocation.items()
        task = next((task for task, peers in tasks if peer in peers), None)
        if found is None or task is None:
            return NULL_TASK
        return self._services.metrics(job, found, task)

    def _idle_timeout_s(self, peer: PeerId, job: JobId) -> float | None:
        """An acker is a peer of its job, so the task that it runs as well knows the job."""
        found = self._job_of(peer, job)
        return None if found is None else idle_timeout_s(found)
