"""Tells those who begin trees that this process works on them, often in each `pendingTimeout`.

On a thread of its own: the threads of tasks may be in a function that takes an hour, and that of
the group may wait for ZooKeeper. Each report is all that a task or acker holds, so nothing is
remembered between two, and one that is lost is replaced by the next. When the process dies or is
frozen the reports end; then its peers are allocated anew, or the trees come again after their
time-out.

Rejected: asking around when a tree has timed out. The answer says what everybody had at different
moments, and what was on its way then nobody had.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from onyx.flow.batch import U64
from onyx.ids import AllocationVersion, JobId, PeerId
from onyx.ledger.lineage import END_PARTITION, PARTITION_SHIFT
from onyx.model.job import Job
from onyx.model.workflow import begins_trees
from onyx.peer.task_runner import TaskRunner
from onyx.seams import Clock
from onyx.task.acking.acker import AckerTask
from onyx.task.acking.owners import Owners
from onyx.task.batch_task import BatchTask
from onyx.task.channels.wiring import Wiring
from onyx.task.holding import held_roots, to_tell
from onyx.transport.interface import Transport

REPORTS_A_TIMEOUT = 4
"""So that several may be lost, or come late."""
LOOK_INTERVAL_S = 0.25
LOOK_INTERVAL_MIN_S = 0.02

AckerKey = tuple[JobId, AllocationVersion, PeerId]


@dataclass(slots=True)
class _Told:
    """When a job is told about next, and how often it is."""

    period_s: float
    next_s: float


class Running(Protocol):
    """What a process works with (`running_tasks`)."""

    @property
    def runners(self) -> Sequence[TaskRunner]:
        """The runners of the tasks that run now."""
        ...

    @property
    def ackers(self) -> Mapping[AckerKey, AckerTask]:
        """The ackers that run now."""
        ...


class Holding:
    """The holds of one incarnation."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        clock: Clock,
        running: Running,
        crashed: Callable[[BaseException], None],
    ) -> None:
        """`crashed` is called if there is a bug."""
        self._transport = transport
        self._clock = clock
        self._running = running
        self._crashed = crashed
        self._jobs: dict[JobId, _Told] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"onyx-holding-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()

    def tell(self) -> None:
        """Report what is due."""
        tasks = [runner.task for runner in self._running.runners]
        due = self._due({each.job_id: each.job for each in tasks if each.job is not None})
        for task in tasks:
            if task.job_id in due and isinstance(task, BatchTask) and task.wired:
                self._tell_of(task)
        for (job, version, _), acker in tuple(self._running.ackers.items()):
            if job in due:
                owners, columns = acker.waiting_roots()
                self._send(job, version, owners, None, columns)

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._interval_s()):
                self.tell()
        except BaseException as error:
            self._crashed(error)
            raise

    def _interval_s(self) -> float:
        shortest_s = min((each.period_s for each in self._jobs.values()), default=LOOK_INTERVAL_S)
        return max(LOOK_INTERVAL_MIN_S, min(LOOK_INTERVAL_S, shortest_s))

    def _due(self, jobs: Mapping[JobId, Job]) -> set[JobId]:
        """Jobs of which is to be told now; those that have no task here are forgotten."""
        now_s = self._clock.monotonic_s()
        for job in self._jobs.keys() - jobs.keys():
            del self._jobs[job]
        due = set()
        for job, manifest in jobs.items():
            told = self._jobs.get(job)
            if told is None:
                period_s = period_of(manifest)
                told = self._jobs[job] = _Told(period_s, now_s + period_s)
            elif now_s >= told.next_s:
                told.next_s = now_s + told.period_s
                due.add(job)
        return due

    def _tell_of(self, task: BatchTask) -> None:
        allocation = task.allocation
        wiring, owners = allocation.wiring, allocation.owners
        self._send(task.job_id, wiring.version, owners, wiring, held_roots(task))

    def _send(
        self,
        job: JobId,
        version: AllocationVersion,
        owners: Owners | None,
        wiring: Wiring | None,
        columns: list[U64],
    ) -> None:
        if owners is None or not columns:
            return
        roots = np.unique(np.concatenate(columns))
        roots = roots[roots < END_PARTITION << PARTITION_SHIFT]
        if not len(roots):
            return
        for site, part in to_tell(owners, wiring, roots):
            self._transport.send_held(site.group, job, version, site.peer, part)


def period_of(job: Job) -> float:
    """Between two reports about a job, in seconds."""
    began = [entry for entry in job.catalog if begins_trees(job, entry.name)]
    shortest_ms = min((entry.pending_timeout for entry in began), default=60_000)
    return shortest_ms / 1_000 / REPORTS_A_TIMEOUT
