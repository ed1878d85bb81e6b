"""A new job carries over the state of the old job that it upgrades.

The log entry that submitted this job killed the old one, but peers of the old job may not know that
yet. So the order matters. First each task with state fences and reads the old job's state logs,
before its peer is ready. Only when all peers are ready do inputs read the old job's frontiers.
Invariant: everything that a frontier covers is in the logs that were read, and every segment that
is read again beyond it is among the applied ids, if it was applied.

State is read from the old job only until this job has its own: a state log with a complete
snapshot, a frontier document for each partition. Until then every step can be repeated.

An old job on Spark has one document in the place of logs and frontiers, which is closed
(`spark.driver.committed.close`) before any of it is read. It has left micro-batches that are not
published, and state by bucket. All that was read is applied and staged, so there are no ids, and no
emissions that somebody waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain

from onyx.errors import UserError
from onyx.ledger.lineage import renumbered
from onyx.model.job import Job
from onyx.spark.driver.committed import Committed, has_ended
from onyx.state.buckets import read_buckets
from onyx.state.chunks import ShardChange, Watermark
from onyx.state.location import check_shared, state_location
from onyx.state.names import TaskFolder
from onyx.state.recovery import NOTHING, CarriedState, CarryOver, read_state
from onyx.state.shard_states import GatheredState, ShardState
from onyx.storage.interface import BlobStore
from onyx.task.parts import Assignment, Runtime
from onyx.task.plugin_context import outputs_of
from onyx.task.recovery.old_job import OldJob, OldManifest, old_job
from onyx.task.recovery.state_log import report_recovery
from onyx.upgrade.translation import Translation, is_of_the_end


def carry_over_state(runtime: Runtime) -> CarryOver:
    """How a task gets its state from the old job."""

    def carry_over(shards: frozenset[int]) -> CarriedState:
        old = old_job(runtime.assignment, runtime.program.job)
        if not old.plan.carries("task", runtime.task):
            return NOTHING
        found = read_old_state(runtime, old, shards)
        state = translated(old, runtime.program.job, runtime.task, old.has_more)
        there = {number: ShardState.of(state(its)) for number, its in found.shards.items()}
        return carried_over(found, old, there)

    return carry_over


def translated(
    old: OldManifest, new: Job, task: str, has_more: bool = False
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


def read_old_state(runtime: Runtime, old: OldJob, shards: frozenset[int]) -> GatheredState:
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


def carried_over(
    found: GatheredState, old: OldJob, shards: Mapping[int, ShardState]
) -> CarriedState:
    """The beginning of shards, and what was applied of the old job by the numbers of this one."""
    roots, ids = renumbered(*found.applied(), old.numbers)
    return CarriedState(shards, roots, ids, found.watermark)


# --- an old job on Spark ------------------------------------------------------------------------


def state_of_query(
    store: BlobStore,
    old: OldManifest,
    query: Committed,
    task: str,
    shards: frozenset[int],
    split: bool,
) -> GatheredState:
    """What the buckets of a task hold of these shards.

    Args:
        split: whether each bucket has some key groups; else one has all, whichever.

    Raises:
        StateError: a chunk is gone or damaged.
        Unavailable, UserError: as everything of the store.
    """
    found, folder = GatheredState.of(shards), TaskFolder(old.id, task)
    marks: list[Watermark | None] = []
    for each in query.held.of(task, shards if split else None):
        own = [n for n in shards if not split or n % query.held.buckets == each.bucket]
        names = [name for name, _ in each.files]
        for number, state in read_buckets(store, folder, names, own).items():
            found.shards[number].extend(state)
        for number in own:
            found.shards[number].closed = each.over
        marks.append(each.mark)
    known = [mark for mark in marks if mark is not None]
    found.watermark = min(known) if known and len(known) == len(marks) else None
    for state in found.shards.values():
        state.closed = state.closed or query.over
    return found


def publish_committed(assignment: Assignment, old: OldManifest, query: Committed) -> None:
    """Publish what the last micro-batch has staged: its worker may have died before. Blocks, and
    may be called by several at once.

    Raises:
        Unavailable: an output cannot be reached now; call it again.
    """
    if old.publishes:
        outputs = outputs_of(assignment, old.origin, old.job)
        outputs.publish(query.attempt, query.outputs, over=False)
