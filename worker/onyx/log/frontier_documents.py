"""How far a partition is complete, for whoever only asks: clients and the operator.

The task that reads the partition writes the document (`task/source/frontier`), with more keys than
this one: they hold cursors of plugins, which readers of the log know nothing of.
"""

from __future__ import annotations

import msgspec

from onyx.ids import JobId
from onyx.log import job_documents
from onyx.log.interface import LogReader
from onyx.structs import prepared


@prepared
class _Frontier(msgspec.Struct):
    position: int = 0


def completed_position(log: LogReader, job: JobId, partition: int) -> int | None:
    """The lowest position of a partition that is not complete; None: nothing is stored. Blocks.

    Raises:
        Unavailable: the log cannot be reached.
    """
    document = log.get_document(job_documents.frontier(job, partition))
    return None if document is None else msgspec.json.decode(document.data, type=_Frontier).position
