"""What a job on Spark begins with that upgrades another one.

The driver writes it before any query runs: chunks of its own, and then the document that names
these and the positions, as a micro-batch 0 that has written nothing. Until that is there, each step
can be repeated by whoever takes over. So the query knows of no old job, and that may be forgotten.

Rejected: to let the query read the chunks of the old job. It would need them until each bucket has
changed, and the translation of what is carried over would be in two places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from msgspec.structs import replace

from onyx.flow.groups.keys import SHARDS
from onyx.ids import JobId
from onyx.model.job import Job
from onyx.spark.driver.committed import Committed, close
from onyx.spark.driver.request import BucketState, Held
from onyx.state.buckets import first_chunk, read_buckets
from onyx.state.names import TaskFolder
from onyx.state.opening import check_shared, state_location
from onyx.state.reading import THREADS
from onyx.storage.interface import BlobStore
from onyx.task.driver.from_peers import AT_ONCE_MS, carried_from_peers
from onyx.task.parts import Assignment
from onyx.task.recovery.old_job import OldJobPlan, planned
from onyx.task.recovery.old_state import publish_committed, translated
from onyx.upgrade.compatibility import windowed


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
        old = planned(assignment, job)
        if old.job.engine != "spark":
            positions, held = carried_from_peers(assignment, job, old, conf)
            return Committed("", {}, {}, positions=tuple(positions), held=held, over=False)
        query = close(assignment.services.log, old.id, by=assignment.job_id)
        publish_committed(assignment, old, query)
        positions = [each for each in query.positions if old.plan.carries("input", each.task)]
        held = _held(assignment, job, old, query)
        return Committed("", {}, {}, positions=tuple(positions), held=held, over=False)

    return carry_over


def _held(assignment: Assignment, job: Job, old: OldJobPlan, query: Committed) -> Held:
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
    store: BlobStore, job_id: JobId, job: Job, old: OldJobPlan, its: BucketState
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
