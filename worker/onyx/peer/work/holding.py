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
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from onyx.base.runs import Numbers, Run, distinct
from onyx.base.seams import Clock
from onyx.ids import AllocationVersion, JobId
from onyx.ledger.lineage import END_ROOT
from onyx.peer.work.hold_times import HoldTimes
from onyx.peer.work.running_ackers import Ackers
from onyx.peer.work.task_runner import TaskRunner
from onyx.task.batch_task import BatchTask
from onyx.task.channels.wiring import Site
from onyx.task.holding import held_roots, to_tell
from onyx.transport.interface import Transport


class Running(Protocol):
    """What a process works with (`running_tasks`)."""

    @property
    def runners(self) -> Sequence[TaskRunner]:
        """The runners of the tasks that run now."""
        ...

    @property
    def ackers(self) -> Ackers:
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
