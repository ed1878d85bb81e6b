"""What a valid job says that has no effect: warnings, for who validates or applies it.

A key for readers is not wrong, so no rule refuses it; but its author may expect an effect.
"""

from __future__ import annotations

from onyx.errors import Problem
from onyx.model.job import Job
from onyx.model.report import at


def notices(job: Job) -> tuple[Problem, ...]:
    """A notice for each key of the job that is for readers only."""
    return tuple(
        Problem(
            at(at("spec.catalog", index), "medium"),
            "is for readers of the job only, and has no effect",
            "the plugin decides what is read or written",
        )
        for index, entry in enumerate(job.catalog)
        if entry.medium is not None
    )
