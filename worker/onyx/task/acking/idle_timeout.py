"""How long an acker keeps a tree of which it hears nothing."""

from __future__ import annotations

from onyx.model.job import Job
from onyx.model.workflow import begins_trees

EXPIRE_MARGIN_S = 60.0
"""After a tree was due to be replayed; the input may be busy or waiting for its source."""


def idle_timeout_s(job: Job) -> float:
    """Time without acks of a tree after which the task that began it has begun it again, in
    seconds."""
    began = [entry for entry in job.catalog if begins_trees(job, entry.name)]
    longest_ms = max(entry.pending_timeout + 2 * entry.input_retry_timeout for entry in began)
    return longest_ms / 1_000 + EXPIRE_MARGIN_S
