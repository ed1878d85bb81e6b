"""Bugs planted on purpose: the simulator must find each, or its silence means nothing.

B1 repeats in the log have effect; B2 appends are not fenced; B3 a reader that falls behind a
collection waits for ever; B4 watches are not armed again after a reconnect; B5 an allocation is
made by iterating a set; B6 what a dead incarnation had not written goes out under the session of
its successor.

In a process of its own (`tests.sim.plugin`) the last two are what stands in `PLANTS`. A simulation
has all processes in one, so it plants them by hand, as `Bug` says.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from immutables import Map
from msgspec.structs import replace
from tests.sim.planting import FoundBy, Plants, planted_of

from onyx.ids import GroupId
from onyx.log import append_queue
from onyx.log.interface import Session
from onyx.log.zookeeper import subscription as tails
from onyx.replica import machine
from onyx.replica.command import Entry
from onyx.replica.state import Replica

if TYPE_CHECKING:
    from tests.sim.process import Process

Apply = Callable[[Replica, Entry], Replica]
_apply = machine.apply
_on_session = append_queue.AppendQueue.on_session
_relist = tails.LogTail.relist


def _apply_repeats(replica: Replica, entry: Entry) -> Replica:
    """B1."""
    return _apply(replica, replace(entry, writer="", sequence=0))


def _unfenced(queue: append_queue.AppendQueue) -> GroupId | None:
    """B2."""
    return None


def _stuck(tail: tails.LogTail, first: int) -> tails.Actions:
    """B3."""
    return ()


def _forgetful(tail: tails.LogTail, cause: tails.Cause) -> tails.Actions:
    """B4."""
    if cause in (tails.Cause.NONE, tails.Cause.CONNECTED, tails.Cause.POLL):
        return ()
    return _relist(tail, cause)


def _apply_shuffled(replica: Replica, entry: Entry) -> Replica:
    """B5."""
    return _shuffled(_apply(replica, entry))


def _never_lost(queue: append_queue.AppendQueue, session: Session) -> append_queue.Append | None:
    """B6."""
    return _on_session(queue, Session.SUSPENDED if session is Session.LOST else session)


PLANTS: Plants = {
    "B1": (machine, "apply", _apply_repeats),
    "B2": (append_queue.AppendQueue, "fence", _unfenced),
    "B3": (tails.LogTail, "on_gap", _stuck),
    "B4": (tails.LogTail, "relist", _forgetful),
    "B5": (machine, "apply", _apply_shuffled),
    "B6": (append_queue.AppendQueue, "on_session", _never_lost),
}
FOUND_BY: FoundBy = {
    "B1": {"L3"},
    "B2": {"L4"},
    "B3": {"V1"},
    "B4": {"V1"},
    "B5": {"L1"},
    "B6": {"L4"},
}
_BY_HAND = ("B5", "B6")


class _Undead(append_queue.AppendQueue):
    """B6: what the last incarnation had not written goes out under the new session."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.group)
        self._process = process
        if process.queue is not None:
            self._unacknowledged.extend(process.queue._unacknowledged)

    def fence(self) -> GroupId | None:
        return self._process.group

    def on_session(self, session: Session) -> append_queue.Append | None:
        return _never_lost(self, session)


class Bug:
    """What is wrong in this run: nothing, or one of `PLANTS`."""

    def __init__(self, name: str | None = None) -> None:
        assert name is None or name in PLANTS
        self.name = name
        self.rearms = name != "B4"

    def planted(self) -> AbstractContextManager[None]:
        """What is wrong in all processes meanwhile."""
        return planted_of(PLANTS, None if self.name in _BY_HAND else self.name)

    def queue(self, process: Process) -> append_queue.AppendQueue:
        """The queue of an incarnation."""
        return _Undead(process) if self.name == "B6" else append_queue.AppendQueue(process.group)

    def own(self, process: Process, apply: Apply) -> Apply:
        """How one process folds."""
        return _apply_shuffled if self.name == "B5" and process.number % 2 else apply


def _shuffled(replica: Replica) -> Replica:
    """Allocations in the order that a set has under another hash seed."""
    for job in replica.jobs:
        run = replica.run(job)
        backwards = {task: tuple(reversed(peers)) for task, peers in run.allocation.items()}
        replica = replica.with_run(job, replace(run, allocation=Map(backwards)))
    return replica
