"""The old job, as plugins that go on with its files hear of it."""

from __future__ import annotations

from typing import Literal

from onyx.log import job_documents
from onyx.plugins.protocol import UpgradedJob
from onyx.task.parts.runtime import Runtime
from onyx.task.recovery.old_job import planned


def upgraded_job(runtime: Runtime, part: Literal["input", "output"]) -> UpgradedJob | None:
    """The old job, if this one goes on with what this input or output has made there. Blocks."""
    if runtime.services.replica().upgrades(runtime.job_id) is None:
        return None
    job_id, _, plan = planned(runtime)
    if not plan.carries(part, runtime.task):
        return None
    began = bool(runtime.services.log.list_documents(job_documents.frontiers(job_id)))
    return UpgradedJob(job_id, began)
