"""The tasks that one incarnation runs: effects of the replica become messages to them.

Used by the group's thread. A peer's next task starts when its last one has ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import Job
from onyx.peer.work.running_ackers import Ackers, RunningAckers
from onyx.peer.work.task_runner import TaskRunner
from onyx.peer.work.task_threads import TaskThreads
from onyx.replica.effects import (
    Effect,
    JobReady,
    RewireTask,
    SealTask,
    StartTask,
    StopTask,
)
from onyx.replica.state import Replica
from onyx.task.kinds import kind_of, new_task
from onyx.task.messages import Ready, Rewire, Seal, Stop
from onyx.task.services import Services


class RunningTasks:
    """The tasks that run in this incarnation, and with them the ackers."""

    def __init__(self, group: GroupId, services: Services, threads: TaskThreads) -> None:
        self._group = group
        self._services = services
        self._threads = threads
        self._running: dict[PeerId, TaskRunner] = {}
        self._next: dict[PeerId, StartTask] = {}
        """The newest task of each peer whose last one is still ending: at most one counts."""
        self.acking = RunningAckers(group, services, threads, self._job_of)
        self._stopping = False

    def apply(self, effects: Sequence[Effect]) -> None:
        """Carry out what concerns tasks, in order."""
        if not effects or self._stopping:
            return
        replica = self._services.replica()
        self._connect(replica)
        self.acking.follow(replica)
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
        runner = TaskRunner(self._threads, task, order, lambda: self._stopped(peer))
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
