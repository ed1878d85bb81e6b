"""Workers that only pretend: a group of peers that joins a log and does what jobs ask for.

They follow the log like real ones (`reactions` and `effects` of the replica machine), signal ready
as soon as they have a task, and do no work: a job ends when the test says so, or when it drains.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import msgspec
from tests.support.log.memory_log import MemoryLog
from tests.support.log.runs import by_job

from onyx.ids import GroupId, JobId, Position
from onyx.log.interface import Origin
from onyx.replica import machine
from onyx.replica.command import Command, Entry
from onyx.replica.commands import (
    AddVirtualPeer,
    ExhaustInput,
    KillJob,
    PrepareJoinCluster,
    RegisterPartitions,
    SealOutput,
    SignalRest,
    VouchJob,
)
from onyx.replica.commands.signal_ready import signal
from onyx.replica.effects import AnswerCheck, Effect, JobReady, RewireTask, SealTask, StartTask
from onyx.replica.state import Replica


class Workers:
    """A group of `peers` virtual peers in a log of one tenancy."""

    def __init__(
        self, log: MemoryLog, peers: int = 4, group: str = "group", tags: tuple[str, ...] = ()
    ) -> None:
        self._group = GroupId(group)
        self._peers = peers
        self._tags = tags
        self._log = log.group(self._group)
        self._inbox: queue.SimpleQueue[Entry | Origin | JobId | None] = queue.SimpleQueue()
        self._ending: set[JobId] = set()
        self.problems: list[str] | None = []
        """With jobs that may take the place of others; None: it does not answer."""
        self.restless = False
        """Something is in flight for ever."""
        self._replica = Replica()
        self._thread = threading.Thread(target=self._follow, name=f"workers-{group}", daemon=True)

    def __enter__(self) -> Workers:
        self._log.register_pulse()
        self._thread.start()
        self._unsubscribe: Callable[[], None] = self._log.subscribe(Position(-1), self._inbox.put)
        self._log.append([PrepareJoinCluster(joiner=self._group)])
        return self

    def __exit__(self, *_: object) -> None:
        self._unsubscribe()
        self._inbox.put(None)
        self._thread.join()
        self._log.close()

    def finish(self, job: str) -> None:
        """All inputs of a job come to their end, as soon as it runs."""
        self._inbox.put(JobId(job))

    def fail(self, job: str, message: str) -> None:
        """A task of a job raises, which kills the job."""
        report = {"task": "read", "type": "ValueError", "message": message}
        self._log.put_document(f"exception/{job}", msgspec.json.encode(report), None)
        self._log.append([KillJob(job=job)])

    def _follow(self) -> None:
        while (item := self._inbox.get()) is not None:
            assert not isinstance(item, Origin)
            if isinstance(item, Entry):
                commands, parent = self._on_entry(item), item.position
            else:
                self._ending.add(item)
                commands, parent = self._exhaust(item), self._replica.version
            if commands:
                self._log.append(commands, parent)

    def _on_entry(self, entry: Entry) -> list[Command]:
        old, new = self._replica, machine.apply(self._replica, entry)
        self._replica = new
        commands = [*machine.reactions(entry, old, new, self._group)]
        if self._group in new.groups and self._group not in old.groups:
            commands += [
                AddVirtualPeer(id=f"{self._group}-{number}", group_id=self._group, tags=self._tags)
                for number in range(self._peers)
            ]
        for effect in machine.effects(entry, old, new, self._group):
            commands += self._done(effect)
        for job in sorted(set(by_job(new, "draining")) - set(by_job(old, "draining"))):
            commands += self._exhaust(job)
        for job in sorted(set(by_job(new, "paused")) - set(by_job(old, "paused"))):
            commands += [] if self.restless else self._rest(job)
        return commands

    def _done(self, effect: Effect) -> list[Command]:
        match effect:
            case StartTask(peer, job, _, _, version) | RewireTask(peer, job, _, _, version):
                return [signal(job, version, peer)]
            case JobReady(job, _):
                return [*self._register(job), *self._exhaust(job)]
            case AnswerCheck(check) if self.problems is not None:
                problems = tuple(self.problems)
                return [VouchJob(id=check, group=self._group, problems=problems)]
            case SealTask(_, job, task):
                return [SealOutput(job=job, task=task)]
        return []

    def _register(self, job: JobId) -> list[Command]:
        known = self._replica.partitions(job)
        return [
            RegisterPartitions(job=job, task=task, count=1)
            for task in self._replica.spec(job).inputs
            if task not in known
        ]

    def _rest(self, job: JobId) -> list[Command]:
        run, mine = self._replica.run(job), self._replica.groups_index[self._group]
        rests = {
            task: tuple(peer for peer in run.allocation.get(task, ()) if peer in mine)
            for task in self._replica.spec(job).sources
        }
        return [
            SignalRest(job, task, run.allocation_version, run.paused, peers)
            for task, peers in rests.items()
            if peers
        ]

    def _exhaust(self, job: JobId) -> list[Command]:
        if not self._replica.run(job).draining and job not in self._ending:
            return []
        if job not in self._replica.records:
            return []  # its entry is on its way, and begins with this
        tasks = self._replica.spec(job).inputs
        return [ExhaustInput(job=job, task=task) for task in tasks]
