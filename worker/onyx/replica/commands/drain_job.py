"""The inputs of a job stop reading; in-flight segments complete, and then the job.

From here everything goes the way of a source that has ended: partitions are exhausted, outputs
sealed. There is no way back. A suspended job stays suspended: draining needs peers, and taking them
is what its owner has forbidden; `resume-job` lets it finish.

A job without peers of which some input has never listed its source has never read anything, so it
is complete at once. Waiting for peers to find that out could take for ever. One that has come in
the place of another job waits for peers: what that had read is to be completed.
"""

from __future__ import annotations

from msgspec.structs import replace

from onyx.ids import JobId, Position
from onyx.replica import jobs
from onyx.replica.command import Command
from onyx.replica.spec import Job
from onyx.replica.state import Replica


class DrainJob(Command, frozen=True):
    """Let a job read nothing new and complete."""

    job: Job

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that does not run, or drains already."""
        if self.job not in replica.jobs or replica.run(self.job).draining:
            return replica
        if _has_never_read(replica, self.job):
            return jobs.complete(replica, self.job)
        return replica.with_run(self.job, replace(replica.run(self.job), draining=True))


def _has_never_read(replica: Replica, job: JobId) -> bool:
    """Peers are ready, and read, only when every input has registered its partitions."""
    registered = replica.partitions(job)
    if replica.upgrades(job) is not None:
        return False
    unread = any(task not in registered for task in replica.spec(job).inputs)
    return unread and not replica.run(job).allocation
