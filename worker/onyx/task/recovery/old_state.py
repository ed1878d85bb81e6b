"""What is read of the state of an old job, for the job that carries it over."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from onyx.errors import UserError
from onyx.ledger.lineage import renumbered
from onyx.spark.driver.committed import has_ended
from onyx.state.gathering import Gathered
from onyx.state.opening import state_location
from onyx.state.recovery import CarriedOver, read_state
from onyx.state.shard_state import ShardState
from onyx.state.sharing import check_shared
from onyx.task.parts.assignment import Assignment
from onyx.task.parts.runtime import Runtime
from onyx.task.recovery.old_job import OldJob
from onyx.task.recovery.old_query import state_of_query
from onyx.task.recovery.progress import report_recovery


def may_carry_over(assignment: Assignment) -> bool:
    """Whether all partitions of the job are registered, if it upgrades another one."""
    # A peer that read before its own partitions have numbers could not renumber what the old job
    # has applied, and would take segments that come again for new ones.
    replica, job = assignment.services.replica(), assignment.job_id
    known = replica.partitions(job)
    return replica.upgrades(job) is None or all(
        source in known for source in replica.spec(job).sources
    )


_EMPTY = np.empty(0, dtype=np.uint64)
NOTHING = CarriedOver({}, _EMPTY, _EMPTY, None)


def read_old_state(runtime: Runtime, old: OldJob, shards: frozenset[int]) -> Gathered:
    """What the task in the old job holds of these shards; its peers, or its query, are fenced off.

    Raises:
        UserError: what it held is gone, as its inputs have ended on Spark, and there are more now.
    """
    services = runtime.services
    store = services.state_store(durable=True)
    check_shared(
        store, services.log, old.id, runtime.assignment.peer, state_location(services.settings)
    )
    if old.query is not None:
        its = runtime.program.operator
        split = its is None or its.is_in_buckets
        found = state_of_query(store, old, old.query, runtime.task, shards, split)
        if old.has_more and any(each.closed for each in found.shards.values()):
            raise UserError(has_ended(runtime.task))
        return found
    ready = services.replica().ready_version(old.id)
    progress = partial(report_recovery, runtime.metrics)
    return read_state(store, old.id, runtime.task, shards, progress, ready)


def carried_over(found: Gathered, old: OldJob, shards: Mapping[int, ShardState]) -> CarriedOver:
    """The beginning of shards, and what was applied of the old job by the numbers of this one."""
    roots, ids = renumbered(*found.applied(), old.numbers)
    return CarriedOver(shards, roots, ids, found.watermark)
