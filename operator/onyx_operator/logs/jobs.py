"""Jobs as a replica knows them, and which of them differ between two replicas: pure."""

from __future__ import annotations

from collections.abc import Iterable

from onyx.ids import JobId
from onyx.replica.jobs import input_partitions
from onyx.replica.scheduling.explain import displaced, why_waiting
from onyx.replica.state import Replica
from onyx_operator.logs.owners import read_owner
from onyx_operator.logs.state import LogJob, Stage
from onyx_operator.work_queue import Key


def stage_of(replica: Replica, job: JobId) -> Stage:
    """Where a job is as of a replica."""
    if job in replica.completed_jobs:
        return "completed"
    if job in replica.killed_jobs:
        return "killed" if job in replica.records else "fenced"
    return "live" if job in replica.records else "unknown"


def log_job(
    replica: Replica,
    job: JobId,
    failure: str = "",
    completed: int | None = None,
    stalled: str = "",
) -> LogJob:
    """A job as of a replica; `failure`, `completed` and `stalled` are known from beside the log."""
    stage = stage_of(replica, job)
    if stage in ("unknown", "fenced"):
        return LogJob(stage)
    if stage == "completed":
        return LogJob(stage, completed=completed, required=_required(replica, job))
    if stage == "killed":
        required = _required(replica, job)
        return LogJob(stage, failure=failure, completed=completed, required=required)
    run = replica.run(job)
    peers = [peer for each in run.allocation.values() for peer in each]
    partitions = input_partitions(replica, job)
    return LogJob(
        "live",
        suspended=run.suspended,
        draining=run.draining,
        tasks=tuple((task, len(run.allocation.get(task, ()))) for task in replica.tasks_of(job)),
        required=_required(replica, job),
        starting=any(replica.ready.get(peer) != run.allocation_version for peer in peers),
        waiting_for=why_waiting(replica, job) or "",
        displaced=displaced(replica, job),
        stalled=stalled if peers else "",
        partitions=len(partitions),
        exhausted=sum(number in run.exhausted_partitions for number in partitions),
        completed=completed,
    )


def _required(replica: Replica, job: JobId) -> int:
    return sum(task.min_peers for task in replica.spec(job).tasks)


def by_owner(replica: Replica, server: str) -> dict[Key, dict[str, list[JobId]]]:
    """The jobs that have not ended of objects of an API server, by name and uid."""
    found: dict[Key, dict[str, list[JobId]]] = {}
    for job in replica.jobs:
        owner = read_owner(replica.spec(job).owner if job in replica.records else "")
        if owner is not None and owner.server == server:
            found.setdefault(owner.key, {}).setdefault(owner.uid, []).append(job)
    return found


def changed_jobs(old: Replica, new: Replica) -> set[JobId]:
    """The jobs about which something is different."""
    found: set[JobId] = set()
    for lists in ("jobs", "completed_jobs", "killed_jobs"):
        before, after = getattr(old, lists), getattr(new, lists)
        if before is not after:
            found |= set(before) ^ set(after)
    if old.records is not new.records:
        known = {*old.records, *new.records}
        found |= {job for job in known if _shown(old, job) != _shown(new, job)}
    if old.ready is not new.ready:
        found |= {job for job in new.jobs if _readiness(old, job) != _readiness(new, job)}
    return found


def _shown(replica: Replica, job: JobId) -> tuple[object, ...]:
    """What a status shows of a record."""
    run = replica.run(job)
    parts = (run.allocation, run.allocation_version, run.suspended, run.draining)
    return (replica.partitions(job), run.exhausted_partitions, *parts)


def jobs_that_wait(replica: Replica) -> Iterable[JobId]:
    """Those without peers: why may be different whenever members or other jobs change."""
    return (job for job in replica.jobs if not replica.run(job).allocation)


def _readiness(replica: Replica, job: JobId) -> bool:
    run = replica.run(job)
    return all(
        replica.ready.get(peer) == run.allocation_version
        for peers in run.allocation.values()
        for peer in peers
    )
