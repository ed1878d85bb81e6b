"""The partitions of the tasks of a job, by name, as the log has numbered them."""

from __future__ import annotations

from collections.abc import Collection

from onyx.base.structs import stored
from onyx.ids import JobId, TaskName
from onyx.log.interface import LogReader
from onyx.log.job_documents import RESTORE_LOG
from onyx.replica.state import Partitions, Replica


def named_partitions(
    log: LogReader, replica: Replica, job: JobId, tasks: Collection[str]
) -> dict[str, tuple[int, list[str]]]:
    """Number of the first partition, and the names of all, of those of the tasks that have some."""
    registered = replica.partitions(job)
    return {
        task: (each.first, names_of(log, job, task, each))
        for task, each in sorted(registered.items())
        if task in tasks
    }


def names_of(log: LogReader, job: JobId, task: TaskName, partitions: Partitions) -> list[str]:
    """The names of the partitions of a task; those of a windowed one are the shards of its state.
    Blocks. Raises StateError: what is stored is something else."""
    digest = partitions.digest
    if not digest:
        return [str(shard) for shard in range(partitions.count)]
    where = f"job {job}, task {task}: chunk {digest} with the names of its partitions"
    names: list[str] = stored(log.get_chunk(digest), list[str], where, RESTORE_LOG)
    return names
