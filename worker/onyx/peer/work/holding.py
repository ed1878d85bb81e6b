"""Tells those who begin trees that this process works on them, several times in `pendingTimeout` of
a job: so they do not begin them again, however long that takes.

On a thread of its own: the threads of tasks may be in a function that takes an hour, and that of
the group may wait for ZooKeeper. Each report is all that a task or acker holds, so nothing is
remembered between two, and one that is lost is replaced by the next. When the process dies or is
frozen the reports end; then its peers are allocated anew, or the trees come again after their
time-out. Rejected: asking around when a tree has timed out. The answer says what everybody had at
different moments, and what was on its way then nobody had.

A peer works on all that it was sent and has not passed on, written or acked. Segments move while
that is read, always in one direction, so the parts of a task are read in that direction: what moves
between two looks is seen twice rather than not at all. What one report misses is in the next. What
a link has not sent yet is in no report: a connection that is away for so long has lost it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from onyx.base.runs import Numbers, Run, distinct
from onyx.base.seams import Clock
from onyx.flow.batch import Batch
from onyx.ids import AllocationVersion, JobId
from onyx.ledger.acker import split_by_acker
from onyx.ledger.lineage import END_ROOT
from onyx.model.job import Job
from onyx.model.workflow import begins_trees
from onyx.peer.work.running_tasks import Ackers
from onyx.peer.work.task_threads import TaskRunner
from onyx.task.acking.owners import Owners
from onyx.task.channels.wiring import Site, Wiring
from onyx.task.parts import Work
from onyx.task.task import BatchTask, Task
from onyx.transport.interface import Partial, Transport

REPORTS_A_TIMEOUT = 4
"""Reports in a pending timeout: several may be lost, or come late."""

LOOK_INTERVAL_S = 0.25

LOOK_INTERVAL_MIN_S = 0.02


class RunningWork(Protocol):
    """What a process works with (`running_tasks`)."""

    @property
    def runners(self) -> Sequence[TaskRunner]:
        """The runners of the tasks that run now."""
        ...

    @property
    def ackers(self) -> Ackers:
        """The ackers that run now."""
        ...


class InFlightReports:
    """The holds of one incarnation."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        clock: Clock,
        running: RunningWork,
        crashed: Callable[[BaseException], None],
    ) -> None:
        """`crashed` is called if there is a bug."""
        self._transport = transport
        self._running = running
        self._crashed = crashed
        self._times = HoldTimes(clock)
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
        due = self._times.due({each.job_id: each.job for each in tasks if each.job is not None})
        for task in tasks:
            if task.job_id in due and isinstance(task, BatchTask) and task.wired:
                wiring, owners = task.allocation.wiring, task.allocation.owners
                for roots in _of_inputs(held_roots(task)):
                    if owners is not None:
                        self._send(task.job_id, wiring.version, to_tell(owners, wiring, roots))
        for (job, version, _), acker in self._running.ackers.items():
            if job in due:
                owners, columns = acker.waiting_roots()
                for roots in _of_inputs(columns):
                    if owners is not None:
                        self._send(job, version, to_tell(owners, None, roots))

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._times.interval_s()):
                self.tell()
        except BaseException as error:
            self._crashed(error)
            raise

    def _send(
        self, job: JobId, version: AllocationVersion, told: Iterable[tuple[Site, Numbers]]
    ) -> None:
        for site, roots in told:
            self._transport.send_held(site.group, job, version, site.peer, roots)


def _of_inputs(columns: Sequence[Numbers]) -> list[Numbers]:
    """Roots of trees that an input began, in columns that increase: not that of the END tree."""
    found = distinct(columns)
    began = [each if isinstance(each, Run) else each[each < END_ROOT] for each in found]
    return [each for each in began if len(each) and int(each[0]) < END_ROOT]


# --- when it is reported ------------------------------------------------------------------------


class HoldTimes:
    """The times of one incarnation, by job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[JobId, _Times] = {}

    def interval_s(self) -> float:
        """How long to wait until the next look at what is due."""
        shortest_s = min((each.period_s for each in self._jobs.values()), default=LOOK_INTERVAL_S)
        return max(LOOK_INTERVAL_MIN_S, min(LOOK_INTERVAL_S, shortest_s))

    def due(self, jobs: Mapping[JobId, Job]) -> set[JobId]:
        """Jobs that are to be reported now; those that have no task here are forgotten."""
        now_s = self._clock.monotonic_s()
        for job in self._jobs.keys() - jobs.keys():
            del self._jobs[job]
        due = set()
        for job, manifest in jobs.items():
            times = self._jobs.get(job)
            if times is None:
                period_s = period_of(manifest)
                self._jobs[job] = _Times(manifest, period_s, now_s + period_s)
                continue
            times.follow(manifest, now_s)
            if now_s >= times.next_s:
                times.next_s = now_s + times.period_s
                due.add(job)
        return due


class _Times(msgspec.Struct):
    """When a job is reported next, and how often it is."""

    job: Job
    period_s: float
    next_s: float

    def follow(self, job: Job, now_s: float) -> None:
        """Values of the job may have changed since the last look: then tasks have another one."""
        if job is not self.job:
            self.job, self.period_s = job, period_of(job)
            self.next_s = min(self.next_s, now_s + self.period_s)


def period_of(job: Job) -> float:
    """Between two reports about a job, in seconds."""
    began = [entry for entry in job.catalog if begins_trees(job, entry.name)]
    shortest_ms = min((entry.pending_timeout for entry in began), default=60_000)
    return shortest_ms / 1_000 / REPORTS_A_TIMEOUT


# --- what is reported, and to whom ---------------------------------------------------------------


def held_roots(task: Task) -> list[Numbers]:
    """Columns of roots, in any order and repeated; none before the task is wired."""
    if not isinstance(task, BatchTask) or not task.wired:
        return []
    allocation, sink = task.allocation, task.runtime.sink
    columns = allocation.inbox.waiting_roots() + _in_work(task.work)
    if allocation.edges is not None:
        columns += allocation.edges.waiting_roots()
    columns += allocation.outbox.waiting_roots()
    if allocation.keeper is not None:
        columns += allocation.keeper.waiting_roots()
    if sink is not None:
        columns += sink.waiting_roots()
    columns += [roots for _, roots, _ in tuple(allocation.retries)]
    return columns + allocation.acks.waiting_roots()


def _in_work(work: Work) -> list[Numbers]:
    batches: list[Batch | Partial | None] = [*work.others, *work.partials]
    batches += tuple(work.pieces.waiting)
    batches.append(work.batch)
    return [each.roots for each in batches if each is not None and each.roots is not None]


def to_tell(owners: Owners, wiring: Wiring | None, roots: Numbers) -> list[tuple[Site, Numbers]]:
    """Who has to know of increasing roots that somebody works on: their owners, and the ackers.

    Args:
        wiring: knows the ackers; None where an acker itself reports.
    """
    told = owners.split(roots)
    if wiring is not None:
        parts = split_by_acker(roots, roots, len(wiring.ackers))
        told += [(wiring.ackers[index], part) for index, part, _ in parts]
    return told


def holds_for(task: Task, version: AllocationVersion, roots: Numbers) -> None:
    """Somebody works on these trees, some of which this task began in this version."""
    if not isinstance(task, BatchTask) or task.version != version:
        return
    keeper, source = task.allocation.keeper, task.runtime.source
    if keeper is not None:
        keeper.emissions.holds.add(roots)
    elif source is not None:
        source.holds.add(roots)
