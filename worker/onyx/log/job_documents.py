"""Paths of the documents about a job that are stored beside the log."""

from __future__ import annotations

from onyx.ids import GroupId, JobId
from onyx.log.interface import Document


def frontiers(job: JobId) -> str:
    """The folder of the frontiers of a job's partitions."""
    return f"frontier/{job}"


def frontier(job: JobId, partition: int) -> str:
    """How far one partition is complete."""
    return f"{frontiers(job)}/{partition}"


def location(job: JobId) -> str:
    """Where the state of a job is stored."""
    return f"location/{job}"


def committed_query(job: JobId) -> str:
    """What the query of a job on Spark has staged, once it is to be published."""
    return f"query/{job}"


def chunk_of(query: Document) -> str | None:
    """The chunk that the document of a committed query names; None when it is JSON itself."""
    return None if query.data.startswith(b"{") else query.data.decode()


def left_files(job: JobId) -> str:
    """Where a collected job may have left files that are still to be removed."""
    return f"files/{job}"


def stalls(job: JobId) -> str:
    """The folder of the reports why a job does not advance."""
    return f"stall/{job}"


def stall(job: JobId, group: GroupId) -> str:
    """The report of one group."""
    return f"{stalls(job)}/{group}"


def outcomes(job: JobId) -> str:
    """The folder of the reports about segments that did not go on."""
    return f"outcome/{job}"


def outcome(job: JobId, group: GroupId) -> str:
    """The report of one group."""
    return f"{outcomes(job)}/{group}"


def exception(job: JobId) -> str:
    """What killed a job."""
    return f"exception/{job}"


def code(job: JobId) -> str:
    """With which code the job began."""
    return f"code/{job}"
