"""A job comes to rest: its inputs read nothing new, and what is in flight arrives.

A pause keeps peers, and has a way back (`resume-job`), which draining has not: no source ends, and
nothing is sealed. A peer of a source of trees, an input or a task with state, signals that it is at
rest when all sources above it have, nothing of its own is in flight, and its frontier or its state
log says so; from then on it begins nothing by itself. So once the last source has signalled,
nothing moves any more, and what is stored says all there is. A signal is of one pause and of one
allocation version, since peers that come read again what may have been in flight.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from onyx.ids import Position
from onyx.replica.command import Command, Peer
from onyx.replica.commands.signal_ready import PEERS_MAX
from onyx.replica.spec import Job, Task
from onyx.replica.state import NOTHING, Replica


class PauseJob(Command, frozen=True):
    """Let the inputs of a job read nothing new until it is resumed."""

    job: Job

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that does not run, or is paused already."""
        if self.job not in replica.jobs or replica.run(self.job).is_paused:
            return replica
        run = replace(replica.run(self.job), paused=position, rested=NOTHING)
        return replica.with_run(self.job, run)


class SignalRest(Command, frozen=True):
    """Peers of a source have nothing in flight, and begin nothing before the job is resumed."""

    job: Job
    task: Task
    version: int
    """The allocation version."""
    pause: int
    """The entry that paused the job."""
    peers: Annotated[tuple[Peer, ...], Meta(min_length=1, max_length=PEERS_MAX)]

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for peers that are not on the task, and for another pause or version than the
        present one."""
        run = replica.run(self.job)
        present = self.version, self.pause
        if not run.is_paused or present != (run.allocation_version, run.paused):
            return replica
        there = run.allocation.get(self.task, ())
        news = {peer: None for peer in self.peers if peer in there and peer not in run.rested}
        if not news:
            return replica
        return replica.with_run(self.job, replace(run, rested=run.rested.update(news)))
