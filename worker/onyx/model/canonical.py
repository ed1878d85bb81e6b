"""A job back as data: one mapping for equal jobs, and its hash.

Defaults are left out, so that a later version with more keys gives the same hash to the same job;
else every upgrade would look like a change of all jobs.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from onyx.model.declaration import Declaration
from onyx.model.job import Job
from onyx.model.manifest import API_VERSION, DECLARATION, JOB_KIND, SPEC, ApiVersion

_HASHED_AS: ApiVersion = "onyx.dev/v1alpha1"
"""The first name of the version of the keys: another name makes no other job."""


def to_mapping(job: Job) -> dict[str, Any]:
    """The whole manifest of a job as plain JSON data; `parse_mapping` gives the job back."""
    return {
        "apiVersion": API_VERSION,
        "kind": JOB_KIND,
        "metadata": {"name": job.name},
        "spec": SPEC.write(job),
    }


def explained(job: Job, declaration: Declaration) -> dict[str, Any]:
    """The manifest for people: of the job, and of how Kubernetes is to run it, without what is
    empty."""
    mapping = to_mapping(job)
    spec = mapping["spec"] | DECLARATION.write(declaration)
    return {**mapping, "spec": {key: each for key, each in spec.items() if each not in ([], {})}}


def canonical_json(value: Any) -> bytes:
    """One text for equal values: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def job_hash(job: Job) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal; the same for equal manifests."""
    hashed = {**to_mapping(job), "apiVersion": _HASHED_AS}
    return hashlib.sha256(canonical_json(hashed)).hexdigest()
