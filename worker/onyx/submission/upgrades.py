"""Whether a job can come in the place of another one, and how far those have come that did."""

from __future__ import annotations

import msgspec

from onyx.errors import UserError
from onyx.ids import JobId
from onyx.log import job_documents
from onyx.log.interface import LogReader
from onyx.model.job import Job, ResumePoint
from onyx.model.parsing.job import parse_mapping
from onyx.replica import jobs
from onyx.replica.state import NOTHING, Replica
from onyx.upgrade.plan import Plan
from onyx.upgrade.plan import plan as plan_of


def plan(
    log: LogReader,
    replica: Replica,
    job: Job,
    point: ResumePoint,
    instead_of: JobId | None = None,
) -> Plan:
    """What a job would carry over.

    Args:
        instead_of: a job that may have taken the place of the other one, for it ends as well.

    Raises:
        UserError: the other job is not known, has no state any more or not yet, or another job has
            taken its place already.
    """
    if point.job is None:
        raise UserError("the resume point names no job: give its id, as `onyx jobs` lists it")
    other = JobId(point.job)
    digest = replica.job_digests.get(other)
    if digest is None:
        raise UserError(f"there is no job {other}: `onyx jobs` lists those that are known")
    if other in replica.completed_jobs:
        raise UserError(f"job {other} has completed: all of it has been processed and told")
    places = replica.resumed_jobs
    after = [each for each in replica.jobs if places.get(each) == other and each != instead_of]
    if after:
        raise UserError(f"job {after[0]} has taken the place of job {other}: resume from that")
    before = places.get(other)
    if before is not None and not _has_taken_over(log, replica, other):
        raise UserError(
            f"job {other} has not begun yet where job {before} stopped: wait until it runs, or "
            f"kill it and resume from {before}"
        )
    return plan_of(parse_mapping(msgspec.json.decode(log.get_chunk(digest))), job, point)


def holder(log: LogReader, replica: Replica, job: JobId) -> JobId:
    """Who has the state that a job would go on from: the job in whose place it comes, or the one
    before that, until it has taken over."""
    for _ in replica.resumed_jobs:
        before = replica.resumed_jobs.get(job)
        if before is None or _has_taken_over(log, replica, job):
            break
        job = before
    return job


def progress(log: LogReader, replica: Replica) -> tuple[list[JobId], set[JobId]]:
    """Running jobs that have taken over from others, and the others of those that have not."""
    taken, needed = [], set()
    for job, other in sorted(replica.resumed_jobs.items()):
        if job in replica.jobs:
            if _has_taken_over(log, replica, job):
                taken.append(job)
            else:
                needed.add(other)
    return taken, needed


def _has_taken_over(log: LogReader, replica: Replica, job: JobId) -> bool:
    """Inputs come last: when each partition has a document of its own, nothing is missing."""
    registered = replica.partitions.get(job, NOTHING)
    stored = log.list_documents(job_documents.frontiers(job))
    return all(task in registered for task in replica.input_tasks[job]) and {
        str(number) for number in jobs.input_partitions(replica, job)
    }.issubset(stored)
