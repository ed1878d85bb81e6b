"""Parts of the state of a windowed task, and the partitions of what they emit: one a shard."""

from __future__ import annotations

from onyx.flow.grouping import SHARDS
from onyx.task.task import Task


def shards_of(task: Task) -> int:
    """How many shards the state of the task has."""
    its = task.static.windowed
    return SHARDS if its is not None and its.group_key is not None else 1


def first_partition(task: Task) -> int | None:
    """Number of the partition of shard 0; None without trees, and until it is registered, which the
    peer of rank 0 asks for."""
    if not task.static.tracked:
        return None
    registered = task.services.replica().partitions.get(task.job_id)
    if registered is not None and task.name in registered:
        return registered[task.name].first
    if task.live.wiring.rank == 0 and not task.registering:
        task.registering = True
        count = shards_of(task)
        task.propose("register-partitions", job=task.job_id, task=task.name, count=count)
    return None
