"""The documents about jobs and workers that are stored beside the log: their paths, and what is in
them.

How far a partition is complete (`completed_position`) is for whoever only asks: clients and the
operator. The task that reads the partition writes the document (`task/source/frontier`), with more
keys: they hold cursors of plugins, which readers of the log know nothing of.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from onyx.base.structs import UNREADABLE, prepared, stored
from onyx.ids import GroupId, JobId
from onyx.log.interface import Document, LogReader

RESTORE_LOG = "restore the data of the log, or submit the job again under another name"
_DIGEST = re.compile(rb"[0-9a-f]{64}")
DEATHS = "deaths"
"""The folder of the reports of supervisors how their processes have died."""


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


def failed_batch(job: JobId) -> str:
    """The segments at which it was killed; goes with what killed it."""
    return f"{exception(job)}/batch"


def code(job: JobId) -> str:
    """With which code the job began."""
    return f"code/{job}"


def deaths(host: str) -> str:
    """The report of a machine, or pod."""
    return f"{DEATHS}/{host}"


def decoded(job: JobId, path: str, data: bytes, hint: Any) -> Any:
    """What a document holds without which the job cannot go on. Raises StateError: it is something
    else."""
    return stored(data, hint, f"job {job}: document {path} in the log", RESTORE_LOG)


@prepared
class _Frontier(msgspec.Struct):
    position: int
    sent: int = 0


def completed_position(log: LogReader, job: JobId, partition: int) -> int | None:
    """The lowest position of a partition that is not complete; None: nothing is stored that could
    be read. Blocks.

    Raises:
        Unavailable: the log cannot be reached.
    """
    document = log.get_document(frontier(job, partition))
    found = None if document is None else _decoded(document.data)
    return None if found is None else found.position


def is_at_rest(log: LogReader, job: JobId, partition: int) -> bool:
    """Whether all that had been sent of a partition was complete when that was stored last, which
    is every two seconds. Blocks.

    Raises:
        Unavailable: the log cannot be reached.
    """
    document = log.get_document(frontier(job, partition))
    return document is None or rests_at(document.data)


def rests_at(data: bytes) -> bool:
    """What `is_at_rest` says of a document with this content."""
    found = _decoded(data)
    return found is None or found.sent <= found.position


def _decoded(data: bytes) -> _Frontier | None:
    try:
        return msgspec.json.decode(data, type=_Frontier)
    except UNREADABLE:  # which the task says that reads the partition
        return None
