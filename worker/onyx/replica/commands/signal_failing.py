"""A peer of a task says that all segments that it has had have failed, or that one has not after
all. When all peers of the task say so, the last of them kills the job, with its error.

In the log because no peer knows of the others, and one bad file among good ones may be all that a
peer of an input has. A worker that killed the job by itself was rejected for that.
"""

from __future__ import annotations

from msgspec.structs import replace

from onyx.ids import Position
from onyx.replica.command import Command, Peer
from onyx.replica.spec import Job, Task
from onyx.replica.state import NOTHING, Replica


class SignalFailing(Command, frozen=True):
    """All that a peer has had has failed."""

    job: Job
    task: Task
    peer: Peer
    over: bool = False
    """Something has not failed since."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a peer that is not on the task, and for one that has said so before."""
        run = replica.run(self.job)
        said = run.failing.get(self.task, NOTHING)
        if self.over == (self.peer not in said) or self.peer not in run.allocation.get(
            self.task, ()
        ):
            return replica
        said = said.delete(self.peer) if self.over else said.set(self.peer, None)
        return replica.with_run(self.job, replace(run, failing=run.failing.set(self.task, said)))
