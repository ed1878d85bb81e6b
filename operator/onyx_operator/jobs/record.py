"""The record of a job in the status of its OnyxJob, and the id that follows from it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx.ids import JobId


class SubmissionRecord(msgspec.Struct, frozen=True):
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
    upgraded_from: SubmissionRecord | None = None
    """The old job that this one upgrades, without its times. Until this one is in the log, the old
    one is the job of the object."""

    @property
    def finished(self) -> bool:
        """The job has ended."""
        return bool(self.finished_at)

    @property
    def version(self) -> tuple[str, int]:
        """What was asked for, whichever attempt it is."""
        return self.digest, self.nonce

    @property
    def retried(self) -> int:
        """How often the job was submitted again after a failure."""
        return self.attempt - self.first_attempt


NOTHING = SubmissionRecord()
"""The record of an object that has no job yet."""


def read_record(body: Mapping[str, Any]) -> SubmissionRecord:
    """The record in an object's status.

    A user may have written it: an id that does not follow from the object's uid counts as none, so
    that nobody's status can have another object's job killed.
    """
    status = body.get("status")
    status = status if isinstance(status, Mapping) else {}
    found, old = _identity(status, body["metadata"]["uid"]), status.get("upgradedFrom")
    if found is None:
        return SubmissionRecord(phase=_text(status, "phase"))
    return replace(
        found,
        submitted_at=_text(status, "submittedAt"),
        finished_at=_text(status, "finishedAt"),
        phase=_text(status, "phase"),
        upgraded_from=_identity(old, body["metadata"]["uid"]) if isinstance(old, Mapping) else None,
    )


def identity(record: SubmissionRecord) -> dict[str, Any]:
    """What identifies the job of a record, as it stands in a status."""
    return {
        "jobId": record.job_id,
        "jobHash": record.digest,
        "restartNonce": record.nonce,
        "attempt": record.attempt,
        "firstAttempt": record.first_attempt,
    }


def _identity(status: Mapping[str, Any], uid: str) -> SubmissionRecord | None:
    digest, nonce, attempt = (
        _text(status, "jobHash"),
        _number(status, "restartNonce"),
        _number(status, "attempt"),
    )
    found = job_id(uid, digest, nonce, attempt)
    if _text(status, "jobId") != found:
        return None
    first = min(max(_number(status, "firstAttempt"), 0), attempt)
    return SubmissionRecord(found, digest, nonce, attempt, first)


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
