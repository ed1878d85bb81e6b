"""What an OnyxJob asks for, as a value: the declaration, the job, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import field
from msgspec.structs import replace

from onyx.client.submissions import Check
from onyx.errors import ManifestError
from onyx.ids import JobId
from onyx.model.changing import fingerprint, without
from onyx.model.declaration import Declaration, JobRef
from onyx.model.job import Job
from onyx.model.limits import NOTHING_DECLARED
from onyx.model.notices import misread_words
from onyx.model.parsing.job import job_hash, parse_declared, parse_manifest
from onyx.upgrade.plan import unbegun
from onyx_operator.conditions import problem_lines
from onyx_operator.jobs.record import job_id

JOB_REF_NOT_FOUND = "JobRefNotFound"
"""Reason of a problem that ends when the file is there."""


class Spec(msgspec.Struct, frozen=True):
    """One OnyxJob as its user wants it."""

    namespace: str
    name: str
    uid: str
    generation: int
    declaration: Declaration = field(default_factory=Declaration)
    job: Job | None = None
    """None when there is a problem."""
    digest: str = ""
    """SHA-256 of the job's canonical form. A `spec.upgrade` that names no old job is no part of
    that, so that taking it out makes no other job; nor are keys that may change while it runs."""
    options: str = NOTHING_DECLARED
    """The fingerprint of these keys."""
    problem: str = ""
    """Why there is no job."""
    problem_reason: str = ""
    """The problem in one word."""
    misread: str = ""
    """Keys that kubectl may have made of other words, a line each."""
    deleted_at: str = ""
    """When the object was deleted by its user; empty while it is wanted."""

    @property
    def version(self) -> tuple[str, int]:
        """What is asked for, whichever attempt it is."""
        return self.digest, self.declaration.restart_nonce

    def job_id(self, attempt: int) -> JobId:
        """The id of the job as it is asked for now, in an attempt."""
        return job_id(self.uid, self.digest, self.declaration.restart_nonce, attempt)


def reference(body: Mapping[str, Any]) -> JobRef | None:
    """Where the job file is, if the object names one and is right otherwise."""
    try:
        declaration, _ = parse_declared(body)
    except ManifestError:
        return None
    return declaration.job_ref


def read_spec(
    body: Mapping[str, Any],
    referenced: str | None = None,
    checks: Sequence[Check] = (),
) -> Spec:
    """The spec of an OnyxJob object.

    Args:
        referenced: the text that its `jobRef` leads to, None when there is none there.
        checks: what else may be wrong with a job.
    """
    metadata = body["metadata"]
    spec = Spec(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        metadata.get("generation", 0),
        misread=problem_lines(misread_words(body.get("spec"))),
        deleted_at=metadata.get("deletionTimestamp") or "",
    )
    try:
        declaration, job = parse_declared(body)
        spec = replace(spec, declaration=declaration)
        if declaration.job_ref is not None:
            job = _referenced(declaration.job_ref, referenced, spec.name)
        assert job is not None
        if problems := [each for check in checks for each in check(job)]:
            raise ManifestError(problems)
    except LookupError as error:
        return replace(spec, problem=str(error.args[0]), problem_reason=JOB_REF_NOT_FOUND)
    except ManifestError as error:
        return replace(spec, problem=problem_lines(error.problems), problem_reason="InvalidSpec")
    digest = job_hash(without(unbegun(job)))
    return replace(spec, job=job, digest=digest, options=fingerprint(job))


def short(problem: str) -> str:
    """The first of the problems, where there are several."""
    first, more, _ = problem.partition("\n")
    return f"{first}; condition Validated lists more problems" if more else first


def _referenced(ref: JobRef, text: str | None, name: str) -> Job:
    source = f"ConfigMap {ref.config_map}, key {ref.key}"
    if text is None:
        raise LookupError(
            f"{source}: there is no such ConfigMap or key; make it, or correct spec.jobRef"
        )
    # The object's own name, by which metrics and `kubectl get` speak of the job.
    return replace(parse_manifest(text, source, name), name=name)
