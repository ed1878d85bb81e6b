"""A replica that gets commands one by one, for tests: positions count up by themselves."""

from __future__ import annotations

from typing import Any

from onyx.ids import Position
from onyx.replica import machine
from onyx.replica.effects import Effect
from onyx.replica.entry import Command, Entry
from onyx.replica.state import Replica


class ReplicaLog:
    """`tell` applies a command; `old` and `new` are the replica before and after the last one."""

    def __init__(self, job_scheduler: str = "balanced") -> None:
        self.old = self.new = Replica(job_scheduler=job_scheduler)
        self.entry: Entry | None = None

    def tell(self, fn: str, *, writer: str = "", sequence: int = 0, **args: Any) -> Replica:
        """Keys are written with underscores here and with hyphens in the log."""
        kebab = {key.replace("_", "-"): value for key, value in args.items()}
        self.entry = Entry(
            Position(self.new.version + 1), Command(fn, kebab), writer=writer, sequence=sequence
        )
        self.old, self.new = self.new, machine.apply(self.new, self.entry)
        return self.new

    def join(self, *groups: str, peers: int = 0) -> ReplicaLog:
        """Groups join one after another, and each brings peers `group-0`, `group-1`, ..."""
        for group in groups:
            self.tell("prepare-join-cluster", joiner=group)
            if group not in self.new.groups:
                self.tell("notify-join-cluster", observer=group)
                watcher = next(w for w, joiner in self.new.accepted.items() if joiner == group)
                self.tell(
                    "accept-join-cluster",
                    observer=group,
                    subject=self.new.pairs.get(watcher, watcher),
                    accepted_observer=watcher,
                    accepted_joiner=group,
                )
            for number in range(peers):
                self.tell("add-virtual-peer", id=f"{group}-{number}", group_id=group)
        return self

    def submit(self, job: str = "j", tasks: str = "read parse write", **more: Any) -> ReplicaLog:
        """A job whose first task is the input and whose last one is the output."""
        names = tasks.split()
        args = {"inputs": names[:1], "outputs": names[-1:], "task_scheduler": "balanced", **more}
        self.tell("submit-job", id=job, tasks=names, **args)
        return self

    def ready(self, job: str = "j") -> ReplicaLog:
        """Every peer of the job signals ready for the present allocation."""
        version = self.new.allocation_version[job]
        for peers in list(self.new.allocations[job].values()):
            for peer in peers:
                self.tell("signal-ready", id=peer, version=version)
        return self

    def effects(self, group: str) -> tuple[Effect, ...]:
        """What the last entry asks of a group."""
        assert self.entry is not None
        return machine.effects(self.entry, self.old, self.new, group)

    def reactions(self, group: str) -> tuple[Command, ...]:
        assert self.entry is not None
        return machine.reactions(self.entry, self.old, self.new, group)
