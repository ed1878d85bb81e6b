"""Everything that a plan for an OnyxJob is made from, as one value. Pure.

Which job the object has, which one its spec asks for, and which one that upgrades is decided here,
once, as `JobVersions`; observation, plan and status use the answer.

A job of an object is identified by what was asked for and by its attempt, a number. A job that
upgrades another one has a higher attempt, so that an edit that is taken back is a new job: the one
that had its id has ended. Ids made of the old job's id were rejected: without the status nobody
could derive them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec
from msgspec import field
from msgspec.structs import replace

from onyx.ids import JobId
from onyx_operator.jobs.record import NOTHING, SubmissionRecord
from onyx_operator.jobs.spec import Spec
from onyx_operator.logs.state import UNKNOWN, Log, LogJob, Stage, Trouble, UpgradeVerdict

ATTEMPTS_PROBED = 256
"""Attempts that are looked for in the log when there is no record."""

StageOf = Callable[[JobId], Stage]
"""Where a job is in the log."""


class JobObservation(msgspec.Struct, frozen=True):
    """An OnyxJob and what the log of its cluster says; made by `observed`."""

    spec: Spec
    now_s: float
    """Seconds since the epoch."""
    record: SubmissionRecord
    """What the status says of the job."""
    log: Log | Trouble
    versions: JobVersions
    """Which job the object has, which one its spec asks for, and which one that upgrades."""
    upgrade: UpgradeVerdict | None = None
    """The answer of the log whether that upgrade is possible; None when there is none to make."""
    invalid_s: float = 0.0
    """For how long condition Validated has been False."""
    unfit: str = ""
    """Why the pods of the cluster could not run the job that the spec asks for, a line each."""
    entrances: Sequence[Mapping[str, str]] = ()
    """Where clients find the inputs of the job that take requests."""
    status_is_current: bool = False
    """The status is about the spec as it is now."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """The status that the object has now."""

    @property
    def current_job(self) -> LogJob:
        """The job that the object has, as the log knows it."""
        current = self.versions.current
        if current is None or isinstance(self.log, Trouble):
            return UNKNOWN
        return self.log.job(current.job_id)


def observed(
    spec: Spec, now_s: float, record: SubmissionRecord, log: Log | Trouble, **more: Any
) -> JobObservation:
    """An observation. The versions are decided here, once, for everything that follows.

    Args:
        now_s: seconds since the epoch.
        log: with the jobs of `ids_of_interest`, or why nothing is known of them.
        more: other fields of `JobObservation`.
    """
    found = JobVersions() if isinstance(log, Trouble) else versions(spec, record, log)
    return JobObservation(spec, now_s, record, log, found, **more)


class JobVersions(msgspec.Struct, frozen=True):
    """The jobs between which a plan decides."""

    current: SubmissionRecord | None = None
    """The job that the object has: the old one until the one that upgrades it is in the log."""
    wanted: SubmissionRecord = NOTHING
    """The job that the spec asks for, without the job that it upgrades."""
    upgrades: SubmissionRecord | None = None
    """The old job, whose state the wanted one carries over. None if the wanted job runs already,
    or starts from the beginning: after a job that has completed or drains, and with another
    restartNonce."""
    abandoned: JobId | None = None
    """A recorded job that is not in the log and is not asked for any more: its submission may still
    be under way."""


def versions(spec: Spec, record: SubmissionRecord, log: Log) -> JobVersions:
    """The jobs between which a plan decides.

    Args:
        log: with the jobs of `ids_of_interest`.
    """
    intended = _is_only_intended(record, log)
    current = record.upgraded_from if intended else record
    current = None if record.job_id is None else current
    return JobVersions(
        current,
        NOTHING if spec.job is None else _wanted(spec, record, log),
        None if current is None else _to_upgrade(spec, record, current, log),
        record.job_id if intended and not is_of(spec, record) else None,
    )


def begins_with_savepoint(seen: JobObservation) -> bool:
    """Whether a job is about to be submitted that begins with a savepoint."""
    job, wanted = seen.spec.job, seen.versions.wanted
    if job is None or job.upgrade is None or job.upgrade.savepoint is None:
        return False
    log = seen.log
    return isinstance(log, Log) and log.job(wanted.job_id).stage == "unknown"


def ids_of_interest(
    spec: Spec, record: SubmissionRecord, stage_of: StageOf = lambda _: "unknown"
) -> tuple[JobId, ...]:
    """The jobs whose position in the log a plan may ask for."""
    recorded = [each.job_id for each in (record, record.upgraded_from) if each and each.job_id]
    if spec.job is None:
        return tuple(recorded)
    asked: list[JobId] = []

    def ask(job: JobId) -> Stage:
        asked.append(job)
        return stage_of(job)

    wanted = spec.job_id(_attempt(spec, record, ask))
    ask(spec.job_id(record.attempt + 1))  # where it has failed, or is fenced
    known = (each for each in asked if stage_of(each) != "unknown")
    return tuple(dict.fromkeys((*recorded, wanted, *known)))


def is_of(spec: Spec, record: SubmissionRecord) -> bool:
    """Whether a job is what the spec asks for, in whichever attempt."""
    return record.job_id is not None and record.version == spec.version


def is_retried(spec: Spec, record: SubmissionRecord, job: LogJob) -> bool:
    """Whether a job that a task has killed is submitted once more."""
    more = record.retried < spec.declaration.failure_policy.retries
    return job.stage == "killed" and bool(job.failure) and more


def _is_only_intended(record: SubmissionRecord, log: Log) -> bool:
    """Whether a job is recorded and not in the log: its submission may be under way."""
    unsubmitted = log.job(record.job_id).stage in ("unknown", "fenced")
    return record.job_id is not None and not record.submitted_at and unsubmitted


def _wanted(spec: Spec, record: SubmissionRecord, log: Log) -> SubmissionRecord:
    job = log.job(record.job_id)
    if is_of(spec, record) and job.stage == "fenced":
        # Killed before it was submitted, so another id is needed. That counts as no retry.
        return replace(_next_attempt(spec, record), first_attempt=record.first_attempt + 1)
    if is_of(spec, record) and is_retried(spec, record, job):
        return _next_attempt(spec, record)
    if is_of(spec, record):
        return replace(record, upgraded_from=None)
    attempt = _attempt(spec, record, lambda each: log.job(each).stage)
    first = 0 if record.job_id is None else attempt
    return SubmissionRecord(spec.job_id(attempt), *spec.version, attempt, first)


def _next_attempt(spec: Spec, record: SubmissionRecord) -> SubmissionRecord:
    """This job once more, under another id."""
    attempt = record.attempt + 1
    return SubmissionRecord(spec.job_id(attempt), *spec.version, attempt, record.first_attempt)


def _to_upgrade(
    spec: Spec, record: SubmissionRecord, old: SubmissionRecord, log: Log
) -> SubmissionRecord | None:
    """The job of the object, `old`, if the wanted one goes on with its state."""
    declared, job = spec.declaration, log.job(old.job_id)
    if spec.job is None or spec.deleted_at or declared.upgrade_policy != "KeepState":
        return None
    if declared.desired_state != "Running":
        return None
    if is_of(spec, old) and old is record:
        # Nothing was edited: only a job that has failed is submitted once more.
        return old if is_retried(spec, old, job) else None
    # What has come to its end, or will, leaves nothing to go on with.
    forgotten = job.stage == "unknown" and record.phase in ("Completed", "Stopped")
    ends = job.stage == "completed" or job.draining or forgotten
    return None if ends or old.nonce != declared.restart_nonce else old


def _attempt(spec: Spec, record: SubmissionRecord, stage_of: StageOf) -> int:
    """The attempt of what is wanted now. Without a record the last one that the log knows; after
    another job of the object the first one that has not ended yet; 0 as long as no job of the
    object has upgraded another."""
    if is_of(spec, record):
        return record.attempt
    if record.job_id is None:
        probed = range(ATTEMPTS_PROBED)
        known = (each for each in probed if stage_of(spec.job_id(each)) != "unknown")
        return max(known, default=0)
    if spec.declaration.upgrade_policy == "Drain" and record.first_attempt == 0:
        return 0
    later = count(record.attempt + 1)
    return next(each for each in later if stage_of(spec.job_id(each)) in ("unknown", "live"))
