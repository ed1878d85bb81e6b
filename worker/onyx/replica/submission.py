"""From a job to its `submit-job` command."""

from __future__ import annotations

from onyx.errors import JobRefused
from onyx.ids import JobId
from onyx.model.job import Job
from onyx.replica.commands.submit_job import SubmitJob
from onyx.replica.spec_of_job import spec_of


def submission(
    job_id: JobId, job: Job, digest: str, job_scheduler: str, owner: str = ""
) -> SubmitJob:
    """The command that submits a job.

    Args:
        digest: content address of the job in the chunk store.
        job_scheduler: the one of the cluster.
        owner: see `JobSpec`.

    Raises:
        JobRefused: the job has a percentage, which the scheduler of the cluster does not read.
    """
    if job.percentage is not None and job_scheduler != "percentage":
        raise JobRefused(
            f"job {job.name!r} has a percentage, which has no effect: the job scheduler of this "
            f"cluster is {job_scheduler}, and only percentage reads it; leave it out"
        )
    return SubmitJob(id=job_id, spec=spec_of(job, digest, owner))
