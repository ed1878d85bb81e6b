"""From a job to the entry that would submit it: its id, its stored manifest, what is scheduled."""

from __future__ import annotations

import uuid

import msgspec

from onyx.ids import JobId
from onyx.log.interface import ClientLog
from onyx.model.canonical import to_mapping
from onyx.model.job import Job
from onyx.model.keys.kinds import JOB_ID
from onyx.path_names import path_name
from onyx.replica.commands import SubmitJob
from onyx.replica.submission import submission


def id_of(job: Job) -> JobId:
    """The id that a job gives itself, or a new one."""
    return JobId(path_name(str(job.metadata.get(JOB_ID, uuid.uuid4())), "the id of a job"))


class Drafts:
    """Makes the entries of one client; nothing is appended."""

    def __init__(self, log: ClientLog, job_scheduler: str) -> None:
        self._log = log
        self._job_scheduler = job_scheduler

    def prepare(self, job_id: JobId, job: Job, owner: str = "") -> SubmitJob:
        """Store a job; the entry that would submit it.

        Raises:
            UserError: the job has too many tasks for an entry of the log.
            NoRoom: the tenancy would hold too much.
        """
        digest = self.store(job)
        return submission(job_id, job, digest, self._job_scheduler, owner)

    def store(self, job: Job) -> str:
        """Store the manifest of a job, if there is room; its digest."""
        data = msgspec.json.encode(to_mapping(job), order="sorted")
        return self._log.put_chunk(data, if_room=True)
