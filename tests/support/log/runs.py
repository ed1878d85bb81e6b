"""The running halves of jobs in a replica: one field of all, and replicas in which some differ."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.support.log.submissions import job_spec

from onyx.base.structs import fields
from onyx.ids import JobId
from onyx.replica.state import JobRecord, JobRun, Replica

_DEFAULTS = {field.name: field.default for field in fields(JobRun)}


def by_job(replica: Replica, field: str) -> dict[JobId, Any]:
    """The values of a field of the running half, of the jobs that have another than the default."""
    found = {
        job: getattr(record.run, field)
        for job, record in sorted(replica.records.items())
        if record.run is not None
    }
    return {job: value for job, value in found.items() if value != _DEFAULTS[field]}


def altered(replica: Replica, job: JobId, **changed: Any) -> Replica:
    """A replica in which the running half of a job has other values; the job may be new to it."""
    record = replica.records.get(job) or JobRecord(job_spec("t"))
    run = replace(record.run or JobRun(), **changed)
    return replace(replica, records=replica.records.set(job, replace(record, run=run)))
