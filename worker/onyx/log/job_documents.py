"""The documents about a job that are stored beside the log: their paths, and what is in them."""

from __future__ import annotations

import re
from typing import Any

from onyx.base.structs import stored
from onyx.ids import GroupId, JobId
from onyx.log.interface import Document

RESTORE_LOG = "restore the data of ZooKeeper, or submit the job again under another name"
_DIGEST = re.compile(rb"[0-9a-f]{64}")


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
    return query.data.decode() if _DIGEST.fullmatch(query.data) else None


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
    """The report of one supervisor, which has the name of its first group that reported."""
    return f"{outcomes(job)}/{group}"


def exception(job: JobId) -> str:
    """What killed a job."""
    return f"exception/{job}"


def code(job: JobId) -> str:
    """With which code the job began."""
    return f"code/{job}"


def decoded(job: JobId, path: str, data: bytes, hint: Any) -> Any:
    """What a document holds without which the job cannot go on. Raises StateError: it is something
    else."""
    return stored(data, hint, f"job {job}: document {path} in ZooKeeper", RESTORE_LOG)
