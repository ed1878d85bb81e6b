"""Where the state of a job is kept, for whoever reads it from outside."""

from __future__ import annotations

from onyx.errors import UserError
from onyx.ids import JobId
from onyx.log.interface import LogReader
from onyx.model.job import Job
from onyx.settings import Settings
from onyx.state.opening import open_store, state_location
from onyx.state.sharing import is_shared
from onyx.storage.interface import Location


def store_of(settings: Settings, log: LogReader, job: Job, job_id: JobId) -> Location:
    """The location that settings name, if it is that of the workers. Nothing is written.

    Raises:
        UserError: the state of the job is not there.
        Unavailable: log or store does not answer.
    """
    if job.guarantee == "at-most-once" and job.engine != "spark":
        raise UserError(
            f"no peer works on job {job_id}, and a job that is at most once keeps its state in the "
            "memory of peers"
        )
    location = state_location(settings)
    store = open_store(location, settings.state.group_access)
    if not is_shared(store, log, job_id):
        raise UserError(
            f"the state of job {job_id} is not in {location}: it was never written, or is removed, "
            "because the job has completed or `onyx gc` forgot it, or ONYX_STATE_URL is not that "
            "of the workers"
        )
    return store
