"""What the peers of one simulated process do: a small model of the task runtime.

Peers signal ready; once every peer of the job is ready, input tasks register their partitions, read
one after the other, and say so when they are through; the elected sealer seals. A job that drains
has no more partitions than it has registered; the inputs of one that is paused say that they rest.
Every unit of work is *emitted*: the checker asks whether this group was allowed to act at this
moment (fencing).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onyx.ids import NO_POSITION, AllocationVersion, JobId, PeerId, Position, Slot, TaskName
from onyx.replica.commands import ExhaustInput, RegisterPartitions, SealOutput, SignalRest
from onyx.replica.commands.signal_ready import signal
from onyx.replica.effects import JobReady, RewireTask, SealTask, StartTask, StopTask

if TYPE_CHECKING:
    from tests.sim.process import Process


@dataclass(slots=True)
class Running:
    """One peer's task as the process has been asked for."""

    job: JobId
    task: TaskName
    slot: Slot
    version: AllocationVersion
    read: int = 0
    """Partitions of its own that an input has read to the end."""
    exhausted: bool = False
    """Whether an input has said that it has read all of its own."""
    rested: Position = NO_POSITION
    """The pause in which an input has said that it is at rest."""


class Tasks:
    """The tasks of one incarnation."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.work = process.world.stream(f"tasks/{process.group}")
        self.running: dict[PeerId, Running] = {}
        self.ready: dict[JobId, AllocationVersion] = {}
        self.paused = False
        self.waiting: list[tuple[PeerId, AllocationVersion]] = []
        """Work that came due while paused."""

    def execute(self, action: object) -> None:
        match action:
            case StartTask(peer, job, task, slot, version) | RewireTask(
                peer, job, task, slot, version
            ):
                self.running[peer] = Running(job, task, slot, version)
                self._later(self._signal_ready, peer, version)
                self._later(self._step, peer, version)
            case StopTask(peer):
                self.running.pop(peer, None)
            case JobReady(job, version):
                self.ready[job] = version
                for peer, running in self.running.items():
                    if running.job == job:
                        self._later(self._step, peer, version)
            case SealTask(peer, job, task):
                self._later(self._seal, peer, job, task)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        waiting, self.waiting = self.waiting, []
        for peer, version in waiting:
            self._later(self._step, peer, version)

    def look_again(self) -> None:
        """Some job drains, is paused or goes on from now on: its inputs, which may have had nothing
        to do, have."""
        for peer, running in self.running.items():
            self._later(self._step, peer, running.version)

    def _later(self, action, *args: object) -> None:  # type: ignore[no-untyped-def]
        self.process.later(self.work.uniform(0.0, self.process.options.work_s), action, *args)

    def _signal_ready(self, peer: PeerId, version: AllocationVersion) -> None:
        running = self.running.get(peer)
        if running is not None and running.version == version:
            self.process.propose(peer, signal(running.job, version, peer))

    def _step(self, peer: PeerId, version: AllocationVersion) -> None:
        """One step of a task; the process decides nothing here that the replica does not say."""
        running = self.running.get(peer)
        if running is None or running.version != version:
            return
        if self.ready.get(running.job) != version:
            return
        if self.paused or not self.process.permitted():
            self.waiting.append((peer, version))
            return
        self.process.emit(peer, running)
        if self._input(peer, running):
            self._later(self._step, peer, version)

    def _input(self, peer: PeerId, running: Running) -> bool:
        """Register or exhaust partitions; whether there is more to do."""
        job = self.process.jobs[running.job]
        replica = self.process.replica
        run = replica.run(running.job)
        drains = run.draining
        if running.task in job.inputs and run.is_paused and running.rested != run.paused:
            running.rested, version = run.paused, int(running.version)
            self.process.propose(
                peer, SignalRest(running.job, running.task, version, run.paused, (peer,))
            )
        if running.task not in job.inputs or not (job.finite or drains):
            return False
        if run.is_paused and not drains:
            return False
        if running.job not in replica.jobs:
            return False
        partitions = replica.partitions(running.job).get(running.task)
        if partitions is None:
            self.process.propose(
                peer,
                RegisterPartitions(
                    job=running.job,
                    task=running.task,
                    count=0 if drains else job.partitions,
                    digest=f"partitions-{running.job}",
                ),
            )
            return True
        if running.exhausted:
            return False
        numbers = range(partitions.first, partitions.first + partitions.count)
        mine = tuple(n for n in numbers if self._deals(peer, running, n))
        if running.read < len(mine):
            running.read += 1
            return True
        running.exhausted = True
        job, task = running.job, running.task
        self.process.propose(peer, ExhaustInput(job=job, task=task, partitions=mine))
        return False

    def _deals(self, peer: PeerId, running: Running, number: int) -> bool:
        slots = self.process.replica.run(running.job).slots[running.task]
        peers = sorted(slots, key=lambda each: slots[each])
        return peers[number % len(peers)] == peer

    def _seal(self, peer: PeerId, job: JobId, task: TaskName) -> None:
        running = self.running.get(peer)
        if running is None or (running.job, running.task) != (job, task):
            return
        if self.paused or not self.process.permitted():
            self._later(self._seal, peer, job, task)
            return
        self.process.emit(peer, running)
        self.process.propose(peer, SealOutput(job=job, task=task))
