"""How many positions the inputs of a job have completed, from the documents beside the log.

Workers count what they do, and what is replayed counts again. A frontier says how much there is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec

from onyx.ids import JobId
from onyx.log import job_documents
from onyx.log.interface import ClientLog
from onyx.replica.state import Replica
from onyx.structs import prepared

PARTITIONS_MAX = 5_000
"""Documents that are read; with more there is no answer."""
AT_ONCE = 8


@prepared
class _Frontier(msgspec.Struct):
    """The keys of `task.source.frontier.Frontier` that are asked for here."""

    position: int = 0


def completed_positions(log: ClientLog, replica: Replica, job: JobId) -> dict[str, int]:
    """By input. Those are missing of which nothing is known.

    Args:
        replica: one in which the job has not completed: then its partitions are forgotten.
    """
    if job not in replica.records:
        return {}
    registered = replica.partitions(job)
    inputs = {task: registered[task] for task in replica.spec(job).inputs if task in registered}
    if sum(each.count for each in inputs.values()) > PARTITIONS_MAX:
        return {}

    def position(number: int) -> int | None:
        document = log.get_document(job_documents.frontier(job, number))
        return (
            None
            if document is None
            else msgspec.json.decode(document.data, type=_Frontier).position
        )

    found: dict[str, int] = {}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for task, its in inputs.items():
            known = list(threads.map(position, range(its.first, its.first + its.count)))
            if None not in known:
                found[task] = sum(filter(None, known))
    return found
