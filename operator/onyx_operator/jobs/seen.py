"""What there is: the object's record, its cluster, and the job in the log, as values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from onyx.ids import JobId

Stage = Literal["unknown", "live", "completed", "killed"]


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
    def ended(self) -> bool:
        return self.stage in ("completed", "killed")


UNKNOWN = LogJob()


@dataclass(frozen=True, slots=True)
class Record:
    """What the operator wrote down of the job that it has submitted, or is about to: kept in the
    status, because from an edited spec the former job's id cannot be derived."""

    job_id: JobId | None = None
    digest: str = ""
    nonce: int = 0
    attempt: int = 0
    submitted_at: str = ""
    """Empty: the record is an intent, and the job may be in the log or not."""
    finished_at: str = ""
    phase: str = ""
    """Phase of the last status."""

    @property
    def finished(self) -> bool:
        return bool(self.finished_at)


@dataclass(frozen=True, slots=True)
class Log:
    """The log of the job's cluster, as followed by this operator."""

    position: int
    jobs: Mapping[JobId, LogJob]
    """Those asked for; others are unknown."""

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
class Seen:
    """Everything that a plan is made from, besides the spec."""

    now_s: float
    has_finalizer: bool
    record: Record
    log: Log | Trouble
    invalid_s: float = 0.0
    """For how long condition Validated has been False."""
    told: bool = False
    """The status is about the spec as it is now."""


def read_record(body: Mapping[str, Any]) -> Record:
    """The record in an object's status.

    A user may have written it: an id that does not follow from the object's uid counts as none, so
    that nobody's status can have another object's job killed.
    """
    status = body.get("status")
    status = status if isinstance(status, Mapping) else {}

    def text(key: str) -> str:
        value = status.get(key)
        return value if isinstance(value, str) else ""

    def number(key: str) -> int:
        value = status.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    digest, nonce, attempt = text("jobHash"), number("restartNonce"), number("attempt")
    if text("jobId") != job_id(body["metadata"]["uid"], digest, nonce, attempt):
        return Record(phase=text("phase"))
    return Record(
        JobId(text("jobId")),
        digest,
        nonce,
        attempt,
        text("submittedAt"),
        text("finishedAt"),
        text("phase"),
    )


def job_id(uid: str, digest: str, nonce: int, attempt: int) -> JobId:
    """The id of a job: made of the object's uid and of all that makes it another job.

    An operator that forgets everything finds the same id again, and a repeated submission is the
    same submission.
    """
    return JobId(str(uuid.uuid5(uuid.UUID(uid), f"{digest}/{nonce}/{attempt}")))
