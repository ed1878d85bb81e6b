"""What a program does to a job with one call, which has a connection of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from onyx.client.connection import connect
from onyx.client.submissions import Submission
from onyx.history.collection import Collected
from onyx.ids import JobId
from onyx.model.job import Job
from onyx.model.notices import notices
from onyx.model.parsing.mapping import parse_mapping
from onyx.settings import Settings

logger = logging.getLogger("onyx.client")


def submit_job(settings: Settings, job: Job | Mapping[str, Any]) -> Submission:
    """Submit a job (a `Job`, or a manifest as a mapping); idempotent by `metadata.jobId`. Keys that
    have no effect are logged as warnings."""
    read = job if isinstance(job, Job) else parse_mapping(job)
    for each in notices(read):
        logger.warning("job %s: %s", read.name, each)
    with connect(settings) as client:
        return client.submit(read)


def await_job_completion(settings: Settings, job: JobId, timeout_s: float | None = None) -> bool:
    """True when the job has completed, False when it was killed; TimeoutError otherwise."""
    with connect(settings) as client:
        return client.wait(job, timeout_s)


def kill_job(settings: Settings, job: JobId) -> None:
    """End a job; what it has in flight is dropped."""
    with connect(settings) as client:
        client.kill(job)


def suspend_job(settings: Settings, job: JobId) -> None:
    """Take its peers from a job until `resume_job`; what it has done stays."""
    with connect(settings) as client:
        client.suspend(job)


def resume_job(settings: Settings, job: JobId) -> None:
    """Let a suspended job ask for peers again, and one that is paused for an upgrade go on."""
    with connect(settings) as client:
        client.resume(job)


def set_options(settings: Settings, job: JobId, task: str, options: Mapping[str, Any]) -> None:
    """Give keys of a task (`{"maxPending": 500}`) other values while the job runs."""
    with connect(settings) as client:
        client.set_options(job, task, options)


def drain_job(settings: Settings, job: JobId) -> None:
    """Let a job read nothing new, complete what is pending, seal its outputs and complete."""
    with connect(settings) as client:
        client.drain(job)


def gc(settings: Settings) -> Collected:
    """Forget the jobs that have ended, and trim the log."""
    with connect(settings) as client:
        return client.gc()
