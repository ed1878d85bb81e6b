"""A replica that gets commands one by one, for tests: positions count up by themselves."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.support.log.raw_entries import raw_command
from tests.support.log.submissions import submit_job

from onyx.ids import Position
from onyx.replica import machine
from onyx.replica.command import Command, Entry
from onyx.replica.commands import (
    AcceptJoinCluster,
    AddVirtualPeer,
    ExhaustInput,
    NotifyJoinCluster,
    PrepareJoinCluster,
    SealOutput,
)
from onyx.replica.commands.signal_ready import signal
from onyx.replica.effects import Effect
from onyx.replica.state import Replica


class ReplicaLog:
    """`tell` applies a command; `old` and `new` are the replica before and after the last one."""

    def __init__(self, job_scheduler: str = "balanced") -> None:
        self.old = self.new = Replica(job_scheduler=job_scheduler)
        self.entry: Entry | None = None

    def tell(self, command: Command, *, writer: str = "", sequence: int = 0) -> Replica:
        """Append a command, as a reader of the log gets it."""
        read = msgspec.convert(msgspec.to_builtins(command), type(command))
        return self._apply(read, writer, sequence)

    def tell_raw(self, fn: str, **args: Any) -> Replica:
        """Append an entry with whatever arguments; `_` in names is `-` in the log."""
        return self._apply(raw_command(fn, {k.replace("_", "-"): v for k, v in args.items()}))

    def _apply(self, command: Command, writer: str = "", sequence: int = 0) -> Replica:
        self.entry = Entry(Position(self.new.version + 1), command, writer, sequence)
        self.old, self.new = self.new, machine.apply(self.new, self.entry)
        return self.new

    def complete(self, job: str = "j") -> ReplicaLog:
        """All sources of a job are exhausted, and then its outputs sealed."""
        for task in self.new.spec(job).sources:
            self.tell(ExhaustInput(job=job, task=task))
        for task in self.new.spec(job).outputs:
            self.tell(SealOutput(job=job, task=task))
        return self

    def join(self, *groups: str, peers: int = 0) -> ReplicaLog:
        """Groups join one after another, and each brings peers `group-0`, `group-1`, ..."""
        for group in groups:
            self.tell(PrepareJoinCluster(joiner=group))
            if group not in self.new.groups:
                self.tell(NotifyJoinCluster(observer=group))
                watcher = next(w for w, joiner in self.new.accepted.items() if joiner == group)
                self.tell(
                    AcceptJoinCluster(
                        observer=group,
                        subject=self.new.pairs.get(watcher, watcher),
                        accepted_observer=watcher,
                        accepted_joiner=group,
                    )
                )
            for number in range(peers):
                self.tell(AddVirtualPeer(id=f"{group}-{number}", group_id=group))
        return self

    def submit(self, job: str = "j", tasks: str = "read parse write", **more: Any) -> ReplicaLog:
        """A job whose first task is the input and whose last one is the output."""
        names = tasks.split()
        args = {"inputs": names[:1], "outputs": names[-1:], "task_scheduler": "balanced", **more}
        self.tell(submit_job(id=job, tasks=names, **args))
        return self

    def ready(self, job: str = "j") -> ReplicaLog:
        """Every peer of the job signals ready for the present allocation, one after the other."""
        run = self.new.run(job)
        for peer in [peer for peers in run.allocation.values() for peer in peers]:
            self.tell(signal(job, run.allocation_version, peer))
        return self

    def effects(self, group: str) -> tuple[Effect, ...]:
        """What the last entry asks of a group."""
        assert self.entry is not None
        return machine.effects(self.entry, self.old, self.new, group)

    def reactions(self, group: str) -> tuple[Command, ...]:
        assert self.entry is not None
        return machine.reactions(self.entry, self.old, self.new, group)
