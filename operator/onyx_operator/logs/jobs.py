"""Jobs as a replica knows them, and which of them differ between two replicas: pure."""

from __future__ import annotations

from collections.abc import Iterable

from onyx.ids import JobId
from onyx.replica.jobs import input_partitions
from onyx.replica.scheduling.explain import displaced, why_waiting
from onyx.replica.state import NOTHING, Replica
from onyx_operator.logs.owners import read_owner
from onyx_operator.logs.state import LogJob, Stage
from onyx_operator.work_queue import Key

_BY_JOB = (
    "allocations",
    "allocation_version",
    "suspended_jobs",
    "draining_jobs",
    "partitions",
    "exhausted_partitions",
)
"""Parts of a replica, by job, that a status shows."""


def stage_of(replica: Replica, job: JobId) -> Stage:
    """Where a job is as of a replica."""
    if job in replica.completed_jobs:
        return "completed"
    if job in replica.killed_jobs:
        return "killed" if job in replica.specs else "fenced"
    return "live" if job in replica.specs else "unknown"


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
    allocations = replica.allocations.get(job, NOTHING)
    peers = [peer for each in allocations.values() for peer in each]
    version = replica.allocation_version.get(job)
    partitions = input_partitions(replica, job)
    exhausted = replica.exhausted_partitions.get(job, NOTHING)
    return LogJob(
        "live",
        suspended=job in replica.suspended_jobs,
        draining=job in replica.draining_jobs,
        tasks=tuple((task, len(allocations.get(task, ()))) for task in replica.tasks_of(job)),
        required=_required(replica, job),
        starting=any(replica.ready.get(peer) != version for peer in peers),
        waiting_for=why_waiting(replica, job) or "",
        displaced=displaced(replica, job),
        stalled=stalled if peers else "",
        partitions=len(partitions),
        exhausted=sum(number in exhausted for number in partitions),
        completed=completed,
    )


def _required(replica: Replica, job: JobId) -> int:
    return sum(task.min_peers for task in replica.specs[job].tasks)


def by_owner(replica: Replica, server: str) -> dict[Key, dict[str, list[JobId]]]:
    """The jobs that have not ended of objects of an API server, by name and uid."""
    found: dict[Key, dict[str, list[JobId]]] = {}
    for job in replica.jobs:
        owner = read_owner(replica.specs[job].owner if job in replica.specs else "")
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
    for name in _BY_JOB:
        before, after = getattr(old, name), getattr(new, name)
        if before is not after:
            found |= {job for job in before if before[job] is not after.get(job)}
            found |= {job for job in after if job not in before}
    if old.ready is not new.ready:
        found |= {job for job in new.jobs if _readiness(old, job) != _readiness(new, job)}
    return found


def jobs_that_wait(replica: Replica) -> Iterable[JobId]:
    """Those without peers: why may be different whenever members or other jobs change."""
    return (job for job in replica.jobs if not replica.allocations.get(job))


def _readiness(replica: Replica, job: JobId) -> bool:
    version = replica.allocation_version.get(job)
    return all(
        replica.ready.get(peer) == version
        for peers in replica.allocations.get(job, NOTHING).values()
        for peer in peers
    )
