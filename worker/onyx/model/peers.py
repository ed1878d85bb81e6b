"""How many virtual peers a job needs before it starts."""

from __future__ import annotations

from onyx.model.job import CatalogEntry, Job


def least_peers(entry: CatalogEntry) -> int:
    """Fewest peers that begin the work of a task."""
    return entry.n_peers or entry.min_peers or 1


def peers_needed(job: Job) -> dict[str, int]:
    """Fewest peers with which a job starts, by task; their sum is what a cluster must have free.

    Spark does all tasks of a job with `engine: spark` in one, which has no name of its own: that of
    the job stands for it. Colocated tasks come in batches with a peer of each.
    """
    if job.engine == "spark":
        return {job.name: 1}
    used = {task for edge in job.workflow for task in edge}
    found = {entry.name: least_peers(entry) for entry in job.catalog if entry.name in used}
    if job.task_scheduler == "colocated":
        return dict.fromkeys(found, max(found.values(), default=1))
    return found
