"""Which segments of a job nobody accounts for, though the job accounts for segments.

Under at-most-once nothing is accounted for. A job with another guarantee may still have inputs,
tasks and flow conditions whose segments are not.
"""

from __future__ import annotations

from onyx.model.job import Job


def loses_track(job: Job) -> bool:
    """Whether a job that accounts for segments has some for which it does not."""
    return job.guarantee != "at-most-once" and (
        any(entry.guarantee == "at-most-once" or not entry.anchored for entry in job.catalog)
        or any(not condition.anchored for condition in job.flow_conditions)
    )
