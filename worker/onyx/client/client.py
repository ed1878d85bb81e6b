"""A client of a cluster: submits, upgrades and kills jobs, waits for them, reads their statuses.

There is no master to ask: a client appends commands to the log, and folds the log into the same
replica as every peer. All commands are idempotent by the id of the job, so a client repeats one
when in doubt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from onyx.client.deaths import read_deaths
from onyx.client.positions import completed_positions
from onyx.client.statuses import (
    JobStatus,
    digest_of,
    exception,
    manifest,
    stalls,
    status_at,
    statuses,
)
from onyx.client.submissions import Check, Submission, Submissions
from onyx.deaths import Death
from onyx.errors import UserError
from onyx.history.archive import Archive
from onyx.history.collection import Collected, collect_all
from onyx.history.replicas import Replicas
from onyx.ids import JobId, Position
from onyx.log.interface import ClientLog, Origin
from onyx.model.job import Job
from onyx.path_names import path_name
from onyx.replica.commands import DrainJob, KillJob, ResumeJob, SubmitJob, SuspendJob
from onyx.replica.entry import Entry
from onyx.replica.jobs import has_completed
from onyx.replica.state import Replica
from onyx.stalls import Stall
from onyx.upgrade.plan import Plan

FORGOTTEN = "its id was let go by `onyx gc`, or by more than ONYX_HISTORY_REMEMBERED_MAX jobs since"


class Client:
    """One connection to the log of a tenancy. Use as a context manager, or call `close`."""

    def __init__(
        self,
        log: ClientLog,
        job_scheduler: str,
        archive: Archive | None = None,
        checks: Sequence[Check] = (),
    ) -> None:
        """
        Args:
            job_scheduler: of a tenancy that nobody has used before.
            archive: of entries that have left the log, if they are kept.
            checks: of jobs that are submitted, besides those against the log.
        """
        self.log = log
        self._replicas = Replicas(log, job_scheduler, archive)
        self._submissions = Submissions(log, self._replicas, checks)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self.log.close()

    def submit(self, job: Job) -> Submission:
        """Submit a job, and upgrade an old one if `spec.upgrade` names it. See `submit_all`."""
        return self.submit_all([job])[0]

    def submit_all(self, jobs: Sequence[Job]) -> list[Submission]:
        """Submit jobs, in this order, after all of them have been checked.

        Workers that read the entries together schedule the jobs at once, so many jobs begin sooner
        than if each were submitted by a call of its own.

        The id is `metadata.jobId` of the job if it has one, which makes the call safe to repeat.
        A job that has ended does not run again, nor does one that was collected since, as long as
        its id is remembered (`ONYX_HISTORY_REMEMBERED_MAX`).
        The entry that submits an upgrade kills the old job. If the old job has not ended, that
        happens only if every worker has answered that it can run the new job, and if there are
        peers for it. An upgrade that names no old job is ignored.

        Raises:
            ManifestError: options of a plugin are wrong.
            JobRefused: another job has the id, or the job cannot upgrade the old one.
            UserError: the old job has no state to carry over.
            Unavailable: not all workers have answered in time; nothing was changed.
        """
        return self._submissions.submit_all(jobs)

    def examine(self, job: Job) -> Plan:
        """What a job would carry over from the job that it upgrades, and all reasons against its
        submission. Nothing is changed.

        Raises:
            UserError: the old job has no state to carry over.
            Unavailable: not all workers have answered in time.
        """
        return self._submissions.examine(job)

    def hand_in(self, job_id: JobId, job: Job, owner: str) -> Position:
        """Write the submission of a job whose id is made of its content, without reading the log.

        The first one of an id counts, a repeat changes nothing. `owner` is kept with the job, for
        whoever is to end it.

        Raises:
            UserError: the job has too many tasks for an entry of the log.
        """
        return self._submissions.hand_in(job_id, job, owner)

    def prepare(self, job_id: JobId, job: Job, owner: str = "") -> SubmitJob:
        """Store a job; the entry that would submit it. Raises as `hand_in`."""
        return self._submissions.prepare(job_id, job, owner)

    def kill(self, job: JobId) -> None:
        """Stop a job for ever.

        Raises:
            UserError: no job has this id.
        """
        digest_of(self.replica(), job)
        self.log.append(KillJob(job=job))

    def suspend(self, job: JobId) -> None:
        """Take its peers from a job until it is resumed; what it has done stays.

        A repeat changes nothing.

        Raises:
            UserError: no job has this id, or it has ended.
        """
        self._change(SuspendJob(job=job), "suspended")

    def resume(self, job: JobId) -> None:
        """Let a suspended job ask for peers again; its inputs replay from their frontiers.

        Changes nothing for a job that is not suspended.

        Raises:
            UserError: no job has this id, or it has ended.
        """
        self._change(ResumeJob(job=job), "resumed")

    def drain(self, job: JobId) -> None:
        """Let a job read nothing new, complete what is pending, seal its outputs and complete.

        There is no way back. A suspended job stays suspended and does this when it is resumed. A
        job that has never had peers completes at once.

        Raises:
            UserError: no job has this id, or it has ended.
        """
        self._change(DrainJob(job=job), "drained")

    def _change(self, command: SuspendJob | ResumeJob | DrainJob, done: str) -> None:
        job, replica = command.job, self.replica()
        digest_of(replica, job)
        for ended, jobs in (
            ("completed", replica.completed_jobs),
            ("killed", replica.killed_jobs),
        ):
            if job in jobs:
                raise UserError(f"job {job} is {ended}: only a job that runs can be {done}")
        self.log.append(command)

    def wait(
        self,
        job: JobId,
        timeout_s: float | None = None,
        progress: Callable[[Replica], None] = lambda _: None,
    ) -> bool:
        """Wait for a job to end: True when it completed, False when it was killed.

        Raises:
            UserError: no job has this id.
            TimeoutError: it had not ended after `timeout_s`.
        """
        replica = self.replica()
        completed = has_completed(replica, JobId(_named(job)))
        if completed is not None:
            return completed
        digest_of(replica, job)
        ended = threading.Event()
        answer: list[bool | None] = []

        def look(_: Entry | Origin, replica: Replica) -> None:
            progress(replica)
            if job not in replica.jobs:
                answer.append(has_completed(replica, job))
                ended.set()

        progress(replica)
        with self.follow(look, after=replica):
            if not ended.wait(timeout_s):
                raise TimeoutError(f"job {job} has not ended after {timeout_s} s")
        if answer[0] is None:
            raise UserError(f"job {job} has ended, and nobody knows any more how: {FORGOTTEN}")
        return answer[0]

    def gc(self) -> Collected:
        """Forget the jobs that have ended, and trim the log. See `collection.collect_all`."""
        return collect_all(self.log, self._replicas)

    def entries(self, after: Position) -> Iterator[Entry]:
        """All entries behind a position that are there now. See `Replicas.entries`."""
        return self._replicas.entries(after)

    def replica(self, at: Position | None = None) -> Replica:
        """The current replica, or the one at a position. See `Replicas.at`."""
        return self._replicas.at(at)

    def follow(
        self, deliver: Callable[[Entry | Origin, Replica], None], after: Replica | None = None
    ) -> AbstractContextManager[None]:
        """Call `deliver` for each entry with the replica after it. See `Replicas.follow`."""
        return self._replicas.follow(deliver, after)

    def exception(self, job: JobId) -> dict[str, Any] | None:
        """The report of a task that killed its job; None if no task did."""
        return exception(self.log, job)

    def stalls(self, replica: Replica, job: JobId) -> list[Stall]:
        """The tasks of a job that do not advance, as live workers report."""
        return stalls(self.log, replica, job)

    def deaths(self) -> list[Death]:
        """Worker processes that have died, as their supervisors have reported."""
        return read_deaths(self.log)

    def status_at(self, replica: Replica, job: JobId) -> JobStatus:
        """The status of a job as of a replica."""
        return status_at(self.log, replica, job)

    def completed_positions(self, replica: Replica, job: JobId) -> dict[str, int]:
        """How many positions each input of a job has completed. See `positions`."""
        return completed_positions(self.log, replica, job)

    def job(self, job: JobId) -> Job:
        """The job as it was submitted."""
        return manifest(self.log, self.replica(), job)

    def status(self, job: JobId) -> JobStatus:
        """The current status of a job."""
        return self.status_at(self.replica(), job)

    def statuses(self) -> list[JobStatus]:
        """Every job that the replica knows, in the order of submission."""
        return statuses(self.log, self.replica())


def _named(job: str) -> str:
    return path_name(job, "the id of a job")
