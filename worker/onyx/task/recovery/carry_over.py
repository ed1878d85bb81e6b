"""A new job carries over the state of the old job that it upgrades.

The log entry that submitted this job killed the old one, but peers of the old job may not know that
yet. So the order matters. First each task with state fences and reads the old job's state logs,
before its peer is ready. Only when all peers are ready do inputs read the old job's frontiers.
Invariant: everything that a frontier covers is in the logs that were read, and every segment that
is read again beyond it is among the applied ids, if it was applied.

State is read from the old job only until this job has its own: a state log with a complete
snapshot, a frontier document for each partition. Until then every step can be repeated.
"""

from __future__ import annotations

from itertools import chain

from onyx.state.chunks import ShardChange
from onyx.state.recovery import CarriedOver, CarryOver
from onyx.state.shard_state import ShardState
from onyx.task.parts.runtime import Runtime
from onyx.task.recovery.old_job import old_job
from onyx.task.recovery.old_state import NOTHING, carried_over, read_old_state
from onyx.upgrade.translation import Translation, is_of_the_end


def carry_over_windows(runtime: Runtime) -> CarryOver | None:
    """How a task with windows gets its state from the old job; None if the job upgrades none."""
    if runtime.services.replica().upgrades(runtime.job_id) is None:
        return None

    def carry_over(shards: frozenset[int]) -> CarriedOver:
        old = old_job(runtime)
        if not old.plan.carries("task", runtime.task):
            return NOTHING
        found = read_old_state(runtime, old, shards)
        translation = Translation(old.job, runtime.program.job, runtime.task, old.plan)
        same_keys = (
            old.job.entry(runtime.task).uniqueness_key == runtime.program.entry.uniqueness_key
        )

        # Where the new job has more inputs, what the end of the old ones did is undone: the shards
        # are open again, and nothing has fired for the last time.
        def state(shard: ShardState) -> ShardState:
            records = [each for part in shard.records() for each in translation.records(part)]
            if old.has_more:
                records = [each for each in records if not is_of_the_end(each)]
            keys = list(chain.from_iterable(shard.unique_keys())) if same_keys else []
            closed = shard.closed and not old.has_more
            return ShardState.of(ShardChange(records, shard.emitted, shard.settled, closed, keys))

        return carried_over(found, old, {n: state(shard) for n, shard in found.shards.items()})

    return carry_over
