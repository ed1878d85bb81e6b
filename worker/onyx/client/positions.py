"""How many positions the inputs of a job have completed, from the documents beside the log.

Workers count what they do, and what is replayed counts again. A frontier says how much there is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from onyx.ids import JobId
from onyx.log.frontier_documents import completed_position
from onyx.log.interface import ClientLog
from onyx.replica.state import Replica

PARTITIONS_MAX = 5_000
"""Documents that are read; with more there is no answer."""
AT_ONCE = 8


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

    position = partial(completed_position, log, job)
    found: dict[str, int] = {}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for task, its in inputs.items():
            known = list(threads.map(position, range(its.first, its.first + its.count)))
            if None not in known:
                found[task] = sum(filter(None, known))
    return found
