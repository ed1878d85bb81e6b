"""How many positions the inputs of a job have completed, from the documents beside the log.

Workers count what they do, and what is replayed counts again. A frontier says how much there is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from onyx.client.reports import committed_totals
from onyx.ids import JobId, TaskName
from onyx.log.documents import completed_position
from onyx.log.interface import ClientLog
from onyx.model.job import Job
from onyx.replica.state import Replica

PARTITIONS_MAX = 5_000
"""Documents that are read; with more there is no answer."""
AT_ONCE = 8


def completed_positions(
    log: ClientLog, replica: Replica, manifest: Job, job: JobId
) -> dict[str, int]:
    """By input. Those are missing of which nothing is known, as under at-most-once.

    Args:
        replica: one in which the job has not completed: then its partitions are forgotten.
    """
    entries = [entry for entry in manifest.catalog if entry.type == "input"]
    committed = committed_totals(log, manifest, job)
    if committed is not None:
        names = [entry.name for entry in entries]
        return {name: committed[name].segments_in for name in names if name in committed}
    if job not in replica.records or manifest.guarantee == "at-most-once":
        return {}
    registered = replica.partitions(job)
    tracked = [TaskName(entry.name) for entry in entries if entry.guarantee != "at-most-once"]
    inputs = {task: registered[task] for task in tracked if task in registered}
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
