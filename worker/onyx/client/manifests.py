"""The manifests of jobs, as they were submitted, and which job somebody names (`replica.jobs`).

`onyx jobs` is often called where there is little CPU. So what parses manifests, which takes long to
import, is imported when there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onyx.base.path_names import path_name
from onyx.errors import OnyxError, UserError
from onyx.ids import JobId
from onyx.log.interface import ClientLog
from onyx.replica.jobs import has_completed
from onyx.replica.state import Replica

if TYPE_CHECKING:
    from onyx.model.job import Job
from functools import partial

from onyx.model.report import listed
from onyx.replica.jobs import jobs_called

SHOWN_MAX = 10


def digest_of(replica: Replica, job: JobId) -> str:
    """The digest of a job's manifest in the chunk store.

    Raises:
        UserError: no job has this id.
    """
    digest = replica.digest_of(JobId(path_name(job, "the id of a job")))
    if digest is None:
        raise UserError(absent(replica, job))
    return digest


def check_runs(replica: Replica, job: JobId, done: str) -> None:
    """Refuse to change a job that does not run; `done` is what was to be done to it.

    Raises:
        UserError: no job has this id, or it has ended.
    """
    digest_of(replica, job)
    completed = has_completed(replica, job)
    if completed is not None:
        how = "has completed" if completed else "was killed or has failed"
        raise UserError(f"job {job} {how}: only a job that runs can be {done}")


def absent(replica: Replica, job: JobId) -> str:
    """Why nothing is known of a job but its id."""
    completed = has_completed(replica, job)
    if completed is None:
        return f"there is no job {job}: `onyx jobs` lists those that are known"
    how = "has completed" if completed else "was killed or has failed"
    return f"job {job} {how}, and has been collected since: no more is known of it"


def readable(log: ClientLog, replica: Replica, job: JobId) -> tuple[Job | None, str]:
    """A job, or why it cannot be read: one damaged manifest must not hide other jobs."""
    if job not in replica.records:
        return None, ""
    try:
        return manifest(log, replica, job), ""
    except OnyxError as error:
        return None, f"its manifest cannot be read: {error}"


def manifest(log: ClientLog, replica: Replica, job: JobId) -> Job:
    """A job as it was submitted. Raises like `digest_of`."""
    from onyx.model.parsing.mapping import stored_job

    digest = digest_of(replica, job)
    return stored_job(log.get_chunk(digest), job)


def named(log: ClientLog, replica: Replica, text: str) -> JobId:
    """The job that somebody names.

    Raises:
        UserError: there is none, or there are several; in a tenancy without jobs the message names
            the others.
    """
    job = JobId(path_name(text, "the id of a job"))
    found = jobs_called(replica, text, partial(_name, log, replica))
    if len(found) > 1:
        ids = listed(sorted(found)[:SHOWN_MAX])
        raise UserError(f"{text} may be any of {len(found)} jobs: give the id: {ids}")
    if not found:
        more = _elsewhere(log, replica)
        raise UserError(absent(replica, job) + (f"; this tenancy{more}" if more else ""))
    return found[0]


def _name(log: ClientLog, replica: Replica, job: JobId) -> str:
    manifest, _ = readable(log, replica, job)
    return "" if manifest is None else manifest.name


def no_jobs(log: ClientLog, replica: Replica, tenancy: str) -> str:
    """What is said where no job is known."""
    if elsewhere := _elsewhere(log, replica):
        return f"tenancy {tenancy}{elsewhere}"
    return "no jobs yet: submit one with `onyx submit job.yaml`"


def _elsewhere(log: ClientLog, replica: Replica) -> str:
    """The tenancies in which the job may be, when this one has never had any."""
    if replica.records or replica.completed_before or replica.killed_before:
        return ""
    others = log.other_tenancies()
    if not others:
        return ""
    shown = listed(others[:SHOWN_MAX])
    return f" has no jobs; others have theirs in {shown}: give --tenancy"
