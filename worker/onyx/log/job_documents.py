"""Where the documents about a job are that are kept beside the log."""

from __future__ import annotations

from onyx.ids import GroupId, JobId


def frontiers(job: JobId) -> str:
    """The folder of the frontiers of a job's partitions."""
    return f"frontier/{job}"


def frontier(job: JobId, partition: int) -> str:
    """How far one partition is complete."""
    return f"{frontiers(job)}/{partition}"


def place(job: JobId) -> str:
    """Name of the place where the state of a job is."""
    return f"place/{job}"


def stalls(job: JobId) -> str:
    """The folder of what keeps a job from advancing."""
    return f"stall/{job}"


def stall(job: JobId, group: GroupId) -> str:
    """The same, as one group reports it."""
    return f"{stalls(job)}/{group}"


def exception(job: JobId) -> str:
    """What killed a job."""
    return f"exception/{job}"
