"""A job enters the cluster. The first entry of an id wins; a repeat changes nothing.

A job that upgrades another one kills the old job in the same step: there is no moment in which both
run, and none in which others could take the peers that become free. If the old job has just
completed, it has no state to carry over, and the new job starts without it.
"""

from __future__ import annotations

from msgspec.structs import replace

from onyx.ids import Position
from onyx.replica import jobs
from onyx.replica.command import Command
from onyx.replica.spec import Job, JobSpec
from onyx.replica.state import JobRecord, JobRun, Replica


class SubmitJob(Command, frozen=True):
    """Start a job."""

    id: Job
    spec: JobSpec

    @property
    def chunks(self) -> tuple[str, ...]:
        """The job."""
        return (self.spec.digest,) if self.spec.digest else ()

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change when the id is taken: by a job that runs, or one that has ended."""
        if jobs.is_known(replica, self.id):
            return replica
        job, spec = self.id, self.spec
        record = JobRecord(spec, run=JobRun())
        old = spec.upgrades
        if old is not None and old != job and not jobs.has_completed(replica, old):
            record = replace(record, upgrades=old)
            if old in replica.jobs:
                replica = jobs.kill(replica, old)
        return replace(replica, jobs=(*replica.jobs, job), records=replica.records.set(job, record))
