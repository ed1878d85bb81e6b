"""From a manifest that was read already to a job: what is stored beside the log is such a one."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any

from onyx.base.structs import stored
from onyx.model.job import Job
from onyx.model.keys.section import Draft
from onyx.model.manifest import SPEC
from onyx.model.parsing.drafts import draft_of
from onyx.model.parsing.job_draft import draft_of_object

DRAFTS_MAX = 8
"""Stored jobs that are remembered as checked."""


def parse_mapping(mapping: Mapping[str, Any]) -> Job:
    """The job in a manifest that was read already: a Kubernetes object, or a Python dict.

    Raises:
        ManifestError: with every problem, each with its path.
    """
    return job_of(draft_of(mapping, draft_of_object))


def stored_job(data: bytes, job: str) -> Job:
    """The job in a manifest as it was stored.

    Args:
        job: its id, or other words for it.

    Raises:
        StateError: the bytes are no manifest.
        ManifestError: as `parse_mapping`.
    """
    # A copy: what is in options belongs to whoever has the job.
    return job_of(deepcopy(_stored_draft(data, job)))


@lru_cache(DRAFTS_MAX)
def _stored_draft(data: bytes, job: str) -> Draft:
    """Each peer reads the job of its task at each new allocation, and to check it takes nearly all
    of the time."""
    remedy = "submit the job again"
    mapping = stored(data, dict[str, Any], f"the manifest of job {job}", remedy)
    return draft_of(mapping, draft_of_object)


def job_of(draft: Draft) -> Job:
    """The job of a draft without problems."""
    job = SPEC.build(draft["spec"], name=draft["name"])
    assert isinstance(job, Job)
    return job
