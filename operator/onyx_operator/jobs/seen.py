"""What there is: the object's record, its cluster, and the job in the log, as values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from onyx.ids import JobId

Stage = Literal["unknown", "live", "completed", "killed", "fenced"]
"""`fenced`: killed before it was submitted, so that a submission under way comes too late."""


@dataclass(frozen=True, slots=True)
class LogJob:
    """A job as the replica knows it."""

    stage: Stage = "unknown"
    suspended: bool = False
    draining: bool = False
    tasks: tuple[tuple[str, int], ...] = ()
    """Peers by task, parents before children."""
    required: int = 0
    """Peers that it needs to start."""
    starting: bool = False
    """Some of its peers are not ready yet."""
    waiting_for: str = ""
    """Why it has no peers."""
    displaced: bool = False
    """It has none because the job scheduler gave those that it had to other jobs."""
    stalled: str = ""
    """Why it does not advance, as its workers report it."""
    failure: str = ""
    """What a task said before it killed the job; empty when a command killed it."""
    partitions: int = 0
    exhausted: int = 0
    """Partitions of its sources that have been read and processed to their end."""
    completed: int | None = None
    """Segments of its inputs that are completely processed; None when that is not known."""

    @property
    def peers(self) -> int:
        return sum(count for _, count in self.tasks)

    @property
    def submitted(self) -> bool:
        return self.stage not in ("unknown", "fenced")

    @property
    def ended(self) -> bool:
        return self.stage in ("completed", "killed", "fenced")


UNKNOWN = LogJob()


@dataclass(frozen=True, slots=True)
class Record:
    """What the operator wrote down of the job that it has submitted, or is about to: kept in the
    status, because the old job's id cannot be derived from an edited spec."""

    job_id: JobId | None = None
    digest: str = ""
    nonce: int = 0
    attempt: int = 0
    first_attempt: int = 0
    """With which this spec began: those after it are retries."""
    submitted_at: str = ""
    """Empty: the record is an intent, and the job may be in the log or not."""
    finished_at: str = ""
    phase: str = ""
    """Phase of the last status."""
    upgraded_from: Record | None = None
    """The old job that this one upgrades, without its times. Until this one is in the log, the old
    one is the job of the object."""

    @property
    def finished(self) -> bool:
        return bool(self.finished_at)

    @property
    def version(self) -> tuple[str, int]:
        """What was asked for, whichever attempt it is."""
        return self.digest, self.nonce

    @property
    def retried(self) -> int:
        """How often the job was submitted again after a failure."""
        return self.attempt - self.first_attempt


@dataclass(frozen=True, slots=True)
class Log:
    """The log of the job's cluster, as followed by this operator."""

    position: int
    jobs: Mapping[JobId, LogJob]
    """Those asked for; others are unknown."""
    orphans: tuple[JobId, ...] = ()
    """Jobs that have not ended of objects that had the name before."""

    def job(self, job: JobId | None) -> LogJob:
        return self.jobs.get(job, UNKNOWN) if job is not None else UNKNOWN


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the log cannot be used now."""

    reason: str
    """`ClusterNotFound`, `ClusterNotReady`, `LogUnreachable`, `Connecting`."""
    message: str
    without_workers: bool = False
    """There are no workers either; otherwise jobs go on as they were."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Whether the wanted job can upgrade the object's job, by the log and both manifests."""

    upgrades: JobId | None = None
    """The job whose state it would carry over: the object's job, or the one which that upgrades, as
    long as it has not carried over the state itself."""
    refusal: str = ""
    """Why it cannot, a line each."""
    waits: str = ""
    """Why it cannot yet, though it may later: ask again."""
    again_in_s: float | None = None
    """When to ask again; of a refusal, for workers may come that can run it."""
    remarks: str = ""
    """What is not carried over."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that a plan is made from, besides the spec."""

    now_s: float
    record: Record
    log: Log | Trouble
    invalid_s: float = 0.0
    """For how long condition Validated has been False."""
    told: bool = False
    """The status is about the spec as it is now."""
    upgrade: Upgrade | None = None
    """About the job that `versions.to_upgrade` names; None when there is none."""


def read_record(body: Mapping[str, Any]) -> Record:
    """The record in an object's status.

    A user may have written it: an id that does not follow from the object's uid counts as none, so
    that nobody's status can have another object's job killed.
    """
    status = body.get("status")
    status = status if isinstance(status, Mapping) else {}
    found, old = _identity(status, body["metadata"]["uid"]), status.get("upgradedFrom")
    if found is None:
        return Record(phase=_text(status, "phase"))
    return replace(
        found,
        submitted_at=_text(status, "submittedAt"),
        finished_at=_text(status, "finishedAt"),
        phase=_text(status, "phase"),
        upgraded_from=_identity(old, body["metadata"]["uid"]) if isinstance(old, Mapping) else None,
    )


def identity(record: Record) -> dict[str, Any]:
    """What identifies the job of a record, as it stands in a status."""
    return {
        "jobId": record.job_id,
        "jobHash": record.digest,
        "restartNonce": record.nonce,
        "attempt": record.attempt,
        "firstAttempt": record.first_attempt,
    }


def _identity(status: Mapping[str, Any], uid: str) -> Record | None:
    digest, nonce, attempt = (
        _text(status, "jobHash"),
        _number(status, "restartNonce"),
        _number(status, "attempt"),
    )
    found = job_id(uid, digest, nonce, attempt)
    if _text(status, "jobId") != found:
        return None
    first = min(max(_number(status, "firstAttempt"), 0), attempt)
    return Record(found, digest, nonce, attempt, first)


def _text(status: Mapping[str, Any], key: str) -> str:
    value = status.get(key)
    return value if isinstance(value, str) else ""


def _number(status: Mapping[str, Any], key: str) -> int:
    value = status.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def job_id(uid: str, digest: str, nonce: int, attempt: int) -> JobId:
    """The id of a job: made of the object's uid and of all that makes it another job.

    An operator that forgets everything finds the same id again, and a repeated submission is the
    same submission.
    """
    return JobId(str(uuid.uuid5(uuid.UUID(uid), f"{digest}/{nonce}/{attempt}")))
