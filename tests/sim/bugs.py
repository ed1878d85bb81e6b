"""Bugs planted on purpose: the simulator must find each, or its silence means nothing.

B1 repeats in the log have effect; B2 appends are not fenced; B3 a reader that falls behind a
collection waits for ever; B4 watches are not armed again after a reconnect; B5 an allocation is
made by iterating a set; B6 what a dead incarnation had not written goes out under the session of
its successor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from immutables import Map

from onyx.ids import GroupId, Position
from onyx.log import append_queue
from onyx.log import tail as tails
from onyx.log.interface import Session
from onyx.replica.entry import Entry
from onyx.replica.state import Replica

if TYPE_CHECKING:
    from tests.sim.process import Process

Apply = Callable[[Replica, Entry], Replica]
NAMES = ("B1", "B2", "B3", "B4", "B5", "B6")


class Unfenced(append_queue.AppendQueue):
    """B2."""

    def fence(self) -> GroupId | None:
        return None


class StuckTail(tails.LogTail):
    """B3."""

    def on_gap(self, first: Position) -> tails.Actions:
        return ()


class ForgetfulTail(tails.LogTail):
    """B4."""

    def relist(self, cause: tails.Cause) -> tails.Actions:
        if cause in (tails.Cause.NONE, tails.Cause.CONNECTED, tails.Cause.POLL):
            return ()
        return super().relist(cause)


class Undead(append_queue.AppendQueue):
    """B6: what the last incarnation had not written goes out under the new session."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.group)
        self._process = process
        if process.queue is not None:
            self._unacknowledged.extend(process.queue._unacknowledged)

    def fence(self) -> GroupId | None:
        return self._process.group

    def on_session(self, session: Session) -> append_queue.Append | None:
        return super().on_session(Session.SUSPENDED if session is Session.LOST else session)


class Bug:
    """What is wrong in this run: nothing, or one of `NAMES`."""

    def __init__(self, name: str | None = None) -> None:
        assert name is None or name in NAMES
        self.name = name
        self.rearms = name != "B4"

    def queue(self, process: Process) -> append_queue.AppendQueue:
        if self.name == "B6":
            return Undead(process)
        return (
            Unfenced(process.group)
            if self.name == "B2"
            else append_queue.AppendQueue(process.group)
        )

    def tail(self, after: Position) -> tails.LogTail:
        kind = {"B3": StuckTail, "B4": ForgetfulTail}.get(self.name or "", tails.LogTail)
        return kind(after)

    def shared(self, apply: Apply) -> Apply:
        """How everybody folds."""
        if self.name == "B1":
            return lambda replica, entry: apply(replica, replace(entry, writer="", sequence=0))
        return apply

    def own(self, process: Process, apply: Apply) -> Apply:
        """How one process folds."""
        if self.name == "B5" and process.number % 2:
            return lambda replica, entry: _shuffled(apply(replica, entry))
        return apply


def _shuffled(replica: Replica) -> Replica:
    """Allocations in the order that a set has under another hash seed."""
    for job in replica.jobs:
        run = replica.run(job)
        backwards = {task: tuple(reversed(peers)) for task, peers in run.allocation.items()}
        replica = replica.with_run(job, replace(run, allocation=Map(backwards)))
    return replica
