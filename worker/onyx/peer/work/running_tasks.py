"""The tasks and ackers that one incarnation runs: effects of the replica become messages to them.

Used by the group's thread. A peer's next task starts when its last one has ended. There is an acker
for each peer that is one, in each version; acks come to it on the threads of the transport.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.model.job import Job
from onyx.peer.work.job_log import JobLog
from onyx.peer.work.task_threads import TaskRunner, TaskThreads
from onyx.replica.effects import (
    Effect,
    JobReady,
    RewireTask,
    SealTask,
    StartTask,
    StopTask,
)
from onyx.replica.state import Replica
from onyx.task.acking.acker import AckerTask, idle_timeout_s
from onyx.task.acking.owners import Owners
from onyx.task.channels.wiring import sources_of
from onyx.task.kinds import kind_of, new_task
from onyx.task.services import Services
from onyx.task.task import Ready, Rewire, Seal, Stop
from onyx.telemetry.interface import NULL_TASK, TaskMetrics


class RunningTasks:
    """The tasks that run in this incarnation, and with them the ackers."""

    def __init__(self, group: GroupId, services: Services, threads: TaskThreads) -> None:
        self._group = group
        self._services = services
        self._threads = threads
        self._running: dict[PeerId, TaskRunner] = {}
        self._next: dict[PeerId, StartTask] = {}
        """The newest task of each peer whose last one is still ending: at most one counts."""
        self.log = JobLog(group)
        self.acking = RunningAckers(group, services, threads, self._job_of)
        self._stopping = False

    def apply(self, effects: Sequence[Effect]) -> None:
        """Carry out what concerns tasks, in order."""
        if not effects or self._stopping:
            return
        replica = self._services.replica()
        self._connect(replica)
        self.acking.follow(replica)
        self.log.given(effects, replica)
        for effect in effects:
            match effect:
                case StartTask(peer):
                    self._next[peer] = effect
                    self._start_next(peer)
                case StopTask(peer, reason=reason):
                    self._stop_task(peer, reason)
                case RewireTask(peer, version=version):
                    self._post(peer, Rewire(version))
                case SealTask(peer):
                    self._post(peer, Seal())
                case JobReady(job, version):
                    self.acking.ready(replica, job, version)
                    self._post_to_all(job, Ready(version))

    def wake(self) -> None:
        """Let every task look again whether it can advance."""
        self._threads.wake()

    @property
    def runners(self) -> tuple[TaskRunner, ...]:
        """The runners of the tasks that run now."""
        return tuple(self._running.values())

    @property
    def ackers(self) -> Ackers:
        """The ackers that run now."""
        return self.acking.running

    def runner(self, peer: PeerId, job: JobId) -> TaskRunner | None:
        """The runner of a peer that works on a job now; from any thread."""
        found = self._running.get(peer)
        return found if found is not None and found.task.job_id == job else None

    def stop(self) -> None:
        """The incarnation ends: stop every task, and start none any more."""
        self._stopping = True
        self._next.clear()
        for runner in tuple(self._running.values()):
            runner.task.post(Stop("peer-left"))
        self.acking.stop()

    def _start_next(self, peer: PeerId) -> None:
        if self._stopping or peer not in self._next or peer in self._running:
            return
        effect = self._next.pop(peer)
        replica = self._services.replica()
        task = new_task(
            self._services,
            peer,
            effect.job,
            effect.task,
            kind_of(replica, effect.job, effect.task),
            lambda: runner.wake(),
        )
        order = replica.tasks_of(effect.job).index(effect.task)
        about = replica.said_of(effect.job)
        runner = TaskRunner(self._threads, task, order, lambda: self._stopped(peer), about)
        self._running[peer] = runner
        runner.start()

    def _stopped(self, peer: PeerId) -> None:
        self._running.pop(peer, None)
        self._start_next(peer)

    def _stop_task(self, peer: PeerId, reason: str) -> None:
        if self._next.pop(peer, None) is None:
            self._post(peer, Stop(reason))

    def _post(self, peer: PeerId, message: Rewire | Seal | Stop) -> None:
        runner = self._running.get(peer)
        if runner is not None:
            runner.task.post(message)

    def _post_to_all(self, job: JobId, message: Ready) -> None:
        for runner in tuple(self._running.values()):
            if runner.task.job_id == job:
                runner.task.post(message)

    def _job_of(self, peer: PeerId, job: JobId) -> Job | None:
        """The job as the task of a peer knows it, if it does already."""
        runner = self.runner(peer, job)
        return None if runner is None else runner.task.job

    def _connect(self, replica: Replica) -> None:
        """Links to the groups with which this one shares a job."""
        me = self._group
        addresses: dict[GroupId, str] = {}
        for job in replica.jobs:
            peers = [peer for task in replica.run(job).allocation.values() for peer in task]
            groups = {replica.groups_reverse_index[peer] for peer in peers}
            if me in groups:
                for peer in peers:
                    group = replica.groups_reverse_index[peer]
                    addresses[group] = str(replica.peer_sites[peer].get("address", ""))
        addresses.pop(me, None)
        self._services.transport.connect(addresses)


# --- ackers -------------------------------------------------------------------------------------

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
