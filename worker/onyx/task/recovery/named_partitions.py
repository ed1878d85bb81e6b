"""The partitions of the tasks of a job, by name, as the log has numbered them."""

from __future__ import annotations

import json
from collections.abc import Collection

from onyx.ids import JobId
from onyx.log.interface import LogReader
from onyx.replica.state import Partitions, Replica


def named_partitions(
    log: LogReader, replica: Replica, job: JobId, tasks: Collection[str]
) -> dict[str, tuple[int, list[str]]]:
    """Number of the first partition, and the names of all, of those of the tasks that have some."""
    registered = replica.partitions(job)
    return {
        task: (each.first, _names(log, each))
        for task, each in sorted(registered.items())
        if task in tasks
    }


def _names(log: LogReader, partitions: Partitions) -> list[str]:
    """The partitions of a windowed task are the shards of its state."""
    if not partitions.digest:
        return [str(shard) for shard in range(partitions.count)]
    names: list[str] = json.loads(log.get_chunk(partitions.digest))
    return names
