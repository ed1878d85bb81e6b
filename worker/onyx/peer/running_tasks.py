"""The tasks and ackers that one incarnation runs: effects of the replica become their messages.

Used by the group's thread; acks and completions come on the transport's threads and are only passed
on. A peer's next task starts when its last one has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from onyx.errors import Unavailable
from onyx.flow.batch import U64
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.peer.task_runner import TaskRunner
from onyx.peer.task_threads import TaskThreads
from onyx.replica.effects import (
    Effect,
    JobReady,
    RewireTask,
    SealTask,
    StartTask,
    StopTask,
)
from onyx.replica.state import Replica
from onyx.task.acking.acker import AckerTask
from onyx.task.acking.idle_timeout import idle_timeout_s
from onyx.task.acking.owners import Owners
from onyx.task.channels.wiring import sources_of
from onyx.task.holding import holds_for
from onyx.task.kinds import kind_of, new_task
from onyx.task.messages import Completions, Query, Ready, Rewire, Seal, Stop
from onyx.task.services import Services
from onyx.transport.state_queries import StateAnswer, StateQuery

ACKER_ORDER = 1_000_000
"""Behind every task: by then all acks of the round are there."""

AckerKey = tuple[JobId, AllocationVersion, PeerId]


class RunningTasks:
    """The tasks and ackers that run in this incarnation. Implements the transport's `Handlers`."""

    def __init__(self, group: GroupId, services: Services, threads: TaskThreads) -> None:
        self._group = group
        self._services = services
        self._threads = threads
        self._running: dict[PeerId, TaskRunner] = {}
        self._next: dict[PeerId, StartTask] = {}
        """The newest task of each peer whose last one is still ending: at most one counts."""
        self._ackers: dict[AckerKey, AckerTask] = {}
        self._stopping = False

    def apply(self, effects: Sequence[Effect]) -> None:
        """Carry out what concerns tasks, in order."""
        if not effects or self._stopping:
            return
        replica = self._services.replica()
        self._connect(replica)
        self._start_ackers(replica)
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
                    self._ready(replica, job, version)

    def wake(self) -> None:
        """Let every task look again whether it can advance."""
        self._threads.wake()

    @property
    def runners(self) -> tuple[TaskRunner, ...]:
        """The runners of the tasks that run now."""
        return tuple(self._running.values())

    @property
    def ackers(self) -> Mapping[AckerKey, AckerTask]:
        """The ackers that run now."""
        return dict(self._ackers)

    def on_acks(
        self, job: JobId, version: AllocationVersion, acker: PeerId, roots: U64, values: U64
    ) -> None:
        """Acks for an acker of this group: columns of roots and of the values to XOR into them.
        Acks for an acker that is not here are dropped: replay covers them."""
        found = self._ackers.get((job, version, acker))
        if found is not None:
            found.post(roots, values)

    def on_completions(
        self, job: JobId, version: AllocationVersion, target: PeerId, roots: U64, retries_max: int
    ) -> None:
        """Trees that are complete (`retries_max` 0), or that a flow condition asks to be read
        again, at most so many times."""
        runner = self._running.get(target)
        if runner is not None and runner.task.job_id == job:
            runner.task.post(Completions(version, roots, retries_max))

    def on_held(self, job: JobId, version: AllocationVersion, target: PeerId, roots: U64) -> None:
        """Somebody works on these trees, for the input that began them or their acker."""
        acker = self._ackers.get((job, version, target))
        if acker is not None:
            acker.holds.add(roots)
        runner = self._running.get(target)
        if runner is not None and runner.task.job_id == job:
            holds_for(runner.task, version, roots)

    def on_query(self, query: StateQuery) -> Future[StateAnswer]:
        """A client asks for the state of a window."""
        answer: Future[StateAnswer] = Future()
        runner = self._running.get(query.peer)
        if runner is None or runner.task.job_id != query.job:
            answer.set_exception(Unavailable(f"peer {query.peer} does not work on the job now"))
        else:
            runner.task.post(Query(query, answer))
        return answer

    def stop(self) -> None:
        """The incarnation ends: stop every task, and start none any more."""
        self._stopping = True
        self._next.clear()
        for runner in tuple(self._running.values()):
            runner.task.post(Stop("peer-left"))
        for acker in self._ackers.values():
            acker.stopped = True

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

    def _post(self, peer: PeerId, message: Rewire | Seal | Stop | Ready) -> None:
        runner = self._running.get(peer)
        if runner is not None:
            runner.task.post(message)

    def _ready(self, replica: Replica, job: JobId, version: AllocationVersion) -> None:
        owners = Owners(replica, job, sources_of(replica, job))
        for (each, at, _), acker in self._ackers.items():
            if each == job and at == version:
                acker.ready(owners)
        for runner in tuple(self._running.values()):
            if runner.task.job_id == job:
                runner.task.post(Ready(version))

    def _start_ackers(self, replica: Replica) -> None:
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
            )
            self._ackers[job, version, peer] = acker
            self._threads.run_shared(acker, lambda: None, ACKER_ORDER)

    def _idle_timeout_s(self, peer: PeerId, job: JobId) -> float | None:
        """An acker is a peer of its job, so the task that it runs as well knows the job."""
        runner = self._running.get(peer)
        if runner is None or runner.task.job_id != job or runner.task.job is None:
            return None
        return idle_timeout_s(runner.task.job)

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
