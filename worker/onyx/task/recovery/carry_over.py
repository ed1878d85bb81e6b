"""A new job carries over the state of the old job that it upgrades.

The log entry that submitted this job killed the old one, but peers of the old job may not know that
yet. So the order matters. First each task with state fences and reads the old job's state logs,
before its peer is ready. Only when all peers are ready do inputs read the old job's frontiers.
Invariant: everything that a frontier covers is in the logs that were read, and every segment that
is read again beyond it is among the applied ids, if it was applied.

State is read from the old job only until this job has its own: a state log with a complete
snapshot, a frontier document for each partition. Until then every step can be repeated.

An old job on Spark has one document in the place of logs and frontiers, which is closed before any
of it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from onyx.model.job import Job
from onyx.state.chunks import ShardChange
from onyx.state.recovery import CarriedOver, CarryOver
from onyx.state.shard_state import ShardState
from onyx.task.parts.runtime import Runtime
from onyx.task.recovery.old_job import Planned, old_job
from onyx.task.recovery.old_state import NOTHING, carried_over, read_old_state
from onyx.upgrade.translation import Translation, is_of_the_end


def carry_over_windows(runtime: Runtime) -> CarryOver | None:
    """How a task with windows gets its state from the old job; None if the job upgrades none."""
    if runtime.services.replica().upgrades(runtime.job_id) is None:
        return None

    def carry_over(shards: frozenset[int]) -> CarriedOver:
        old = old_job(runtime.assignment, runtime.program.job)
        if not old.plan.carries("task", runtime.task):
            return NOTHING
        found = read_old_state(runtime, old, shards)
        state = translated(old, runtime.program.job, runtime.task, old.has_more)
        there = {number: ShardState.of(state(its)) for number, its in found.shards.items()}
        return carried_over(found, old, there)

    return carry_over


def translated(
    old: Planned, new: Job, task: str, has_more: bool = False
) -> Callable[[ShardState], ShardChange]:
    """What becomes of the state of a shard of a task that is carried over.

    Args:
        has_more: whether the new job has more inputs. Then what the end of the old ones did is
            undone: the shards are open again, and nothing has fired for the last time.
    """
    translation = Translation(old.job, new, task, old.plan)
    same_keys = old.job.entry(task).uniqueness_key == new.entry(task).uniqueness_key

    def state(shard: ShardState) -> ShardChange:
        records = [each for part in shard.records() for each in translation.records(part)]
        if has_more:
            records = [each for each in records if not is_of_the_end(each)]
        keys = list(chain.from_iterable(shard.unique_keys())) if same_keys else []
        closed = shard.closed and not has_more
        return ShardChange(records, shard.emitted, shard.settled, closed, keys)

    return state
