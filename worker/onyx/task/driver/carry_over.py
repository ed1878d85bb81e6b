"""What a job on Spark begins with that upgrades another one.

The driver writes it before any query runs: chunks of its own, and then the document that names
these and the positions, as a micro-batch 0 that has written nothing. Until that is there, each step
can be repeated by whoever takes over. So the query knows of no old job, and that may be forgotten.

If the old job ran on peers, it must have been at rest, because segments in flight are known to
peers by ids, and a query has none: nothing was applied behind its frontiers, and all that its
windows had emitted has arrived. Then its state is as that of a query behind a micro-batch. Whether
it was at rest is looked at when its logs are fenced, because it may have gone on until then.

Rejected: to let the query read the chunks of the old job. It would need them until each bucket has
changed, and the translation of what is carried over would be in two places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import floor

from msgspec.structs import replace

from onyx.errors import UserError
from onyx.flow.groups.keys import SHARDS
from onyx.ids import JobId, TaskName
from onyx.ledger.lineage import partitions_of, positions_of
from onyx.model.job import CatalogEntry, Job
from onyx.spark.driver.committed import Committed, close
from onyx.spark.driver.request import BucketState, Held, Position
from onyx.state.buckets import bucket_of, first_chunk, read_buckets
from onyx.state.location import check_shared, state_location
from onyx.state.names import TaskFolder
from onyx.state.reading import THREADS
from onyx.state.recovery import read_state
from onyx.state.shard_states import GatheredState
from onyx.storage.interface import BlobStore
from onyx.task.channels.wiring import commits
from onyx.task.parts import Assignment
from onyx.task.plugin_context import context_of_driver
from onyx.task.recovery.old_job import OldManifest, named_partitions, old_manifest
from onyx.task.recovery.old_state import publish_committed, translated
from onyx.task.recovery.output import finish, last_tokens
from onyx.task.source.frontier import Frontier, FrontierStore
from onyx.upgrade.plan import windowed

PARTITIONS = "spark.sql.shuffle.partitions"

BUCKETS = 32
"""The number of buckets where the job does not say it: how many cores Spark has is not known yet,
and the number is for good."""

AT_ONCE_MS = 0
"""A timer of each bucket: the first micro-batch begins though nothing may have come, and finds out
when those of the new job are due."""


def carry_over_query(
    assignment: Assignment, job: Job, conf: Mapping[str, str]
) -> Callable[[], Committed] | None:
    """Gives what the job begins with; None if it upgrades none.

    Args:
        conf: the settings of its Spark.
    """
    if assignment.services.replica().upgrades(assignment.job_id) is None:
        return None

    def carry_over() -> Committed:
        old = old_manifest(assignment, job)
        if old.job.engine != "spark":
            positions, held = carried_from_peers(assignment, job, old, conf)
            return Committed("", {}, {}, positions=tuple(positions), held=held, over=False)
        query = close(assignment.services.log, old.id, by=assignment.job_id)
        publish_committed(assignment, old, query)
        positions = [each for each in query.positions if old.plan.carries("input", each.task)]
        held = _held(assignment, job, old, query)
        return Committed("", {}, {}, positions=tuple(positions), held=held, over=False)

    return carry_over


# --- of a job on Spark --------------------------------------------------------------------------


def _held(assignment: Assignment, job: Job, old: OldManifest, query: Committed) -> Held:
    tasks = [task for task in windowed(job) if old.plan.carries("task", task)]
    if query.over:  # what they held is not in the last commit
        return Held(states=tuple(BucketState(task, 0, over=True) for task in tasks))
    services = assignment.services
    store, location = services.state_store(durable=True), state_location(services.settings)
    held = [each for each in query.held.states if each.task in tasks]
    if held:
        check_shared(store, services.log, old.id, assignment.peer, location)
    copied = partial(_copied, store, assignment.job_id, job, old)
    with ThreadPoolExecutor(THREADS, "onyx-state") as threads:
        return Held(query.held.buckets, tuple(threads.map(copied, held)))


def _copied(
    store: BlobStore, job_id: JobId, job: Job, old: OldManifest, its: BucketState
) -> BucketState:
    """A bucket with the state that it had in the old job, in a chunk of this one."""
    if its.over:
        return its
    names, folder = [name for name, _ in its.files], TaskFolder(old.id, its.task)
    found, state = read_buckets(store, folder, names, range(SHARDS)), translated(old, job, its.task)
    return replace(
        its,
        files=first_chunk(
            store,
            TaskFolder(job_id, its.task),
            its.bucket,
            {number: state(shard) for number, shard in found.items()},
        ),
        due_ms=AT_ONCE_MS,
    )


# --- of a job on peers --------------------------------------------------------------------------


def carried_from_peers(
    assignment: Assignment, job: Job, old: OldManifest, conf: Mapping[str, str]
) -> tuple[list[Position], Held]:
    """Positions and state behind the old job. Blocks.

    Raises:
        UserError: it was not at rest.
    """
    buckets = min(max(1, int(conf[PARTITIONS])), SHARDS) if PARTITIONS in conf else BUCKETS
    # First logs, which are fenced, then frontiers: what is below one is in the logs.
    tasks = {
        task: _read(assignment, old, task, _shards(job.entry(task)))
        for task in windowed(job)
        if old.plan.carries("task", task)
    }
    outputs = {
        entry.name: _read(assignment, old, entry.name, SHARDS)
        for entry in job.catalog
        if old.plan.carries("output", entry.name) and commits(old.job, entry.name)
    }
    frontiers = _frontiers(assignment, job, old)
    for name, found in (*tasks.items(), *outputs.items()):
        _require_rest(old, name, found, {number: at for number, (_, at) in frontiers.items()})
    for name, found in outputs.items():
        context = context_of_driver(assignment, assignment.job_id, job, job.entry(name))
        finish(assignment.services, old, name, context, last_tokens(found.shards.values()))
    now_ms = assignment.services.clock.wall_ms()
    positions = [_position(task, name, at, now_ms) for (task, name), at in frontiers.values()]
    states = [
        each
        for task, found in tasks.items()
        for each in _buckets(assignment, job, old, task, found, buckets)
    ]
    return positions, Held(buckets, tuple(states))


def _shards(entry: CatalogEntry) -> int:
    """In how many the state of a task is: in one, if it is not split."""
    return SHARDS if entry.is_stateful or entry.is_grouped else 1


def _read(assignment: Assignment, old: OldManifest, task: str, shards: int) -> GatheredState:
    services = assignment.services
    store, location = services.state_store(durable=True), state_location(services.settings)
    check_shared(store, services.log, old.id, assignment.peer, location)
    ready = services.replica().ready_version(old.id)
    return read_state(store, old.id, task, range(shards), ready=ready)


def _frontiers(
    assignment: Assignment, job: Job, old: OldManifest
) -> dict[int, tuple[tuple[TaskName, str], Frontier]]:
    """Frontiers of the partitions that the old job has begun to read, by their numbers there."""
    services, found = assignment.services, {}
    inputs = [each.name for each in job.catalog if old.plan.carries("input", each.name)]
    known = named_partitions(services.log, services.replica(), old.id, inputs)
    for task, (first, names) in known.items():
        for number, name in enumerate(names, first):
            store = FrontierStore(services, old.id, number)
            at = store.load()
            if store.stored:
                found[number] = (TaskName(task), name), at
    return found


def _require_rest(
    old: OldManifest, task: str, found: GatheredState, frontiers: Mapping[int, Frontier]
) -> None:
    roots, _ = found.applied()
    partitions, positions = partitions_of(roots), positions_of(roots)
    behind = sum(
        int(((partitions == number) & (positions >= at.position)).sum())
        for number, at in frontiers.items()
    )
    emitted = sum(len(run.segments) for shard in found.shards.values() for run in shard.emitted)
    if behind or emitted:
        raise UserError(
            f"job {old.id} had {behind + emitted:,} segments at task {task} in flight, and a query "
            "of Spark cannot recognize them: upgrade that job with engine: peers, and while that "
            "one runs, go to engine: spark from there: it comes to rest first"
        )


def _position(task: str, name: str, at: Frontier, now_ms: int) -> Position:
    return Position(
        task, name, at.position, at.cursor.position, at.cursor.state, at.exhausted, at.newest_ms,
        now_ms,
    )  # fmt: skip


def _buckets(
    assignment: Assignment,
    job: Job,
    old: OldManifest,
    task: str,
    found: GatheredState,
    buckets: int,
) -> Iterator[BucketState]:
    """The buckets of a task, with the state of their shards in chunks of the new job."""
    split = job.entry(task).is_grouped
    store = assignment.services.state_store(durable=True)
    folder = TaskFolder(assignment.job_id, task)
    state, mark = translated(old, job, task), found.watermark
    for bucket in range(buckets) if split else [bucket_of(task, buckets)]:
        own = [n for n in found.shards if not split or n % buckets == bucket]
        if all(found.shards[number].closed for number in own):
            yield BucketState(task, bucket, over=True)
            continue
        files = first_chunk(store, folder, bucket, {n: state(found.shards[n]) for n in own})
        time_ms = None if mark is None else floor(mark)
        yield BucketState(task, bucket, time_ms, files=files, due_ms=AT_ONCE_MS)
