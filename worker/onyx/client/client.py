"""A client of a cluster: submits, upgrades and kills jobs, waits for them, reads their statuses.

There is no master to ask: a client appends commands to the log, and folds the log into the same
replica as every peer. All commands are idempotent by the id of the job, so a client repeats one
when in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from onyx.client.manifests import check_runs, digest_of, named
from onyx.client.manifests import manifest as read_manifest
from onyx.client.reader import JobReader
from onyx.client.submissions import Check, Submission, Submissions
from onyx.history.archive import Archive
from onyx.history.collection import Collected, collect_all
from onyx.history.replicas import Replicas
from onyx.ids import JobId, Position, TaskName
from onyx.log.acts import Act, Acts
from onyx.log.interface import ClientLog
from onyx.model.changing import with_options
from onyx.model.job import Job
from onyx.model.parsing.options import read_options
from onyx.replica.authors import UNKNOWN
from onyx.replica.commands import (
    DrainJob,
    KillJob,
    ResumeJob,
    SetOptions,
    SubmitJob,
    SuspendJob,
)
from onyx.replica.commands.set_options import TaskOptions
from onyx.replica.state import Replica
from onyx.settings import LogSettings
from onyx.upgrade.plan import UpgradePlan


class Client(JobReader):
    """One connection to the log of a tenancy. Use as a context manager, or call `close`."""

    def __init__(
        self,
        log: ClientLog,
        job_scheduler: str,
        archive: Archive | None = None,
        checks: Sequence[Check] = (),
        tenancy: str = "",
        by: str = UNKNOWN,
        limits: LogSettings | None = None,
    ) -> None:
        """
        Args:
            job_scheduler: of a tenancy that nobody has used before.
            archive: of entries that have left the log, if they are kept.
            checks: of jobs that are submitted, besides those against the log.
            tenancy: of the log, for lines of audit.
            by: who does what is done by this client, if a call does not say.
            limits: what one job may have; None: what settings say by default.
        """
        super().__init__(log, Replicas(log, job_scheduler, archive))
        self._acts = Acts(log, tenancy, by)
        limits = limits or LogSettings()
        self._submissions = Submissions(log, self._acts, self._replicas, checks, limits)

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
        peers for it. One on peers is brought to rest first if the new one has `engine: spark`. An
        upgrade that names no old job is ignored.

        Raises:
            ManifestError: options of a plugin are wrong.
            JobRefused: another job has the id, or the job cannot upgrade the old one.
            UserError: the old job has no state to carry over.
            NoRoom: the tenancy would hold too much.
            Unavailable: not all workers have answered in time, or the old job does not come to
                rest; nothing was changed.
        """
        return self._submissions.submit_all(jobs)

    def examine(self, job: Job) -> UpgradePlan:
        """What a job would carry over from the job that it upgrades, and all reasons against its
        submission. Nothing is changed.

        Raises:
            UserError: the old job has no state to carry over.
            Unavailable: not all workers have answered in time.
        """
        return self._submissions.examine(job)

    def paused(self, job: JobId) -> AbstractContextManager[None]:
        """Have the inputs of a job read nothing new for the time of a block. A job that is
        suspended, or that somebody else has paused, stays so."""
        return self._submissions.paused(job)

    def hand_in(
        self, job_id: JobId, job: Job, owner: str, replica: Replica, by: str = ""
    ) -> Position:
        """Write the submission of a job whose id is made of its content, without reading the log.

        The first one of an id counts, a repeat changes nothing. `owner` is kept with the job, for
        whoever is to end it. `replica` is the newest that the caller knows: it says how many jobs
        there are. `by`: who has asked for it.

        Raises:
            UserError: the job has too many tasks for an entry of the log.
            NoRoom: the tenancy would hold too much.
        """
        return self._submissions.hand_in(job_id, job, owner, replica, by)

    def act(self, command: Act, by: str = "") -> Position:
        """Write a command about a job, whatever the log says of the job. `by`: who does it."""
        return self._acts.append(command, by)

    def prepare(self, job_id: JobId, job: Job, owner: str = "") -> SubmitJob:
        """Store a job; the entry that would submit it. Raises as `hand_in`."""
        return self._submissions.prepare(job_id, job, owner)

    def named(self, text: str) -> JobId:
        """The job with this id, or with this name, or whose id alone begins so. See `manifests`.

        Raises:
            UserError: there is none, or there are several.
        """
        return named(self.log, self.replica(), text)

    def kill(self, job: JobId, by: str = "") -> Position:
        """Stop a job for ever; where that is in the log. `by`: who does it, as of all of these.

        Raises:
            UserError: no job has this id.
        """
        digest_of(self.replica(), job)
        return self.act(KillJob(job=job), by)

    def suspend(self, job: JobId, by: str = "") -> Position:
        """Take its peers from a job until it is resumed; what it has done stays.

        A repeat changes nothing.

        Raises:
            UserError: no job has this id, or it has ended.
        """
        return self._change(SuspendJob(job=job), by, "suspended")

    def resume(self, job: JobId, by: str = "") -> Position:
        """Let a suspended job ask for peers again, and one that is paused read on.

        The inputs of a suspended one replay from their frontiers. Changes nothing for a job that is
        neither.

        Raises:
            UserError: no job has this id, or it has ended.
        """
        return self._change(ResumeJob(job=job), by, "resumed")

    def drain(self, job: JobId, by: str = "") -> Position:
        """Let a job read nothing new, complete what is pending, seal its outputs and complete.

        There is no way back. A suspended job stays suspended and does this when it is resumed. A
        job that has never had peers completes at once, unless it upgrades another one.

        Raises:
            UserError: no job has this id, or it has ended.
        """
        return self._change(DrainJob(job=job), by, "drained")

    def set_options(
        self, job: JobId, task: str, options: Mapping[str, Any], by: str = ""
    ) -> Position:
        """Give keys of a task's catalog entry other values while the job runs.

        All peers of the task follow them from their next batch on; nothing is allocated anew. The
        keys are those of `model.changing`; `default` stands for a key that is left out. A suspended
        job takes them as well. A job that upgrades this one begins with its own manifest.

        Raises:
            UserError: no job has this id, or it has ended.
            ManifestError: it has no such task, a key cannot change, or a value is wrong.
        """
        replica = self.replica()
        check_runs(replica, job, "changed")
        run, manifest = replica.run(job), read_manifest(self.log, replica, job)
        now = with_options(manifest, run.options, bool(run.declared))
        values = TaskOptions.of(read_options(now, task, options))
        return self.act(SetOptions(job=job, tasks={TaskName(task): values}), by)

    def _change(self, command: SuspendJob | ResumeJob | DrainJob, by: str, done: str) -> Position:
        check_runs(self.replica(), command.job, done)
        return self.act(command, by)

    def gc(self) -> Collected:
        """Forget the jobs that have ended, and trim the log. See `collection.collect_all`."""
        return collect_all(self.log, self._replicas, self._acts.append)
