"""What a valid job says that has no effect: warnings, for who validates or applies it.

A key that only informs people is not wrong, so it is not a rule; but whoever sets it may expect
that it does something.
"""

from __future__ import annotations

from onyx.errors import Problem
from onyx.model.job import Job
from onyx.model.report import at


def notices(job: Job) -> tuple[Problem, ...]:
    """One for each key of the job that only informs."""
    return tuple(
        Problem(
            at(at("spec.catalog", index), "medium"),
            "only informs whoever reads the job; nothing depends on it",
            "the plugin decides what is read or written",
        )
        for index, entry in enumerate(job.catalog)
        if entry.medium is not None
    )
