"""Reading the job of a task from the chunk store."""

from __future__ import annotations

from onyx.model.job import Job
from onyx.model.parsing.mapping import stored_job
from onyx.task.parts.assignment import Assignment
from onyx.task.retrying.suspects import check_task


def load(assignment: Assignment) -> Job | None:
    """The job; None while it is read.

    Raises:
        Failure: worker processes have died in the task's hooks or triggers again and again.
    """
    check_task(assignment)
    services = assignment.services
    log, digest = services.log, services.replica().digest_of(assignment.job_id)
    if digest is None:
        return None

    def read() -> Job:
        return stored_job(log.get_chunk(digest), assignment.job_id)

    return assignment.background.poll("job", read)
