"""How far a partition is complete, for whoever only asks: clients and the operator.

The task that reads the partition writes the document (`task/source/frontier`), with more keys than
this one: they hold cursors of plugins, which readers of the log know nothing of.
"""

from __future__ import annotations

import msgspec

from onyx.base.structs import UNREADABLE, prepared
from onyx.ids import JobId
from onyx.log import job_documents
from onyx.log.interface import LogReader


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
    found = _read(log, job, partition)
    return None if found is None else found.position


def is_at_rest(log: LogReader, job: JobId, partition: int) -> bool:
    """Whether all that had been sent of a partition was complete when that was stored last, which
    is every two seconds. Blocks.

    Raises:
        Unavailable: the log cannot be reached.
    """
    found = _read(log, job, partition)
    return found is None or found.sent <= found.position


def _read(log: LogReader, job: JobId, partition: int) -> _Frontier | None:
    document = log.get_document(job_documents.frontier(job, partition))
    if document is None:
        return None
    try:
        return msgspec.json.decode(document.data, type=_Frontier)
    except UNREADABLE:  # which the task says that reads the partition
        return None
