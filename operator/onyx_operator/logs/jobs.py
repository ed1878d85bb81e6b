"""Jobs as a replica knows them, and which of them differ between two replicas: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onyx.ids import JobId
from onyx.replica.jobs import has_completed, input_partitions
from onyx.replica.scheduling.explain import displaced, why_paused, why_waiting
from onyx.replica.state import Replica
from onyx.reports.deaths import Death, halts, reason, sentence
from onyx_operator.logs.state import LogJob, Stage
from onyx_operator.owners import JobOwner
from onyx_operator.work_queue import ObjectKey


def stage_of(replica: Replica, job: JobId) -> Stage:
    """Where a job is as of a replica."""
    completed = has_completed(replica, job)
    if completed is None:
        return "live" if job in replica.records else "unknown"
    if completed:
        return "completed"
    return "fenced" if job in replica.killed_jobs and job not in replica.records else "killed"


def log_job(
    replica: Replica,
    job: JobId,
    failure: str = "",
    completed: int | None = None,
    stalled: str = "",
    deaths: Sequence[Death] = (),
    moved_ms: int = 0,
) -> LogJob:
    """A job as of a replica; the rest is known from beside the log.

    Args:
        replica: of the log of its cluster.
        job: its id.
        failure: what killed it.
        completed: segments of its inputs that are completely processed.
        stalled: why it does not advance, as workers report.
        deaths: of worker processes that may have to do with it.
        moved_ms: when `completed` rose last, in milliseconds since 1970.
    """
    stage = stage_of(replica, job)
    if stage in ("unknown", "fenced"):
        return LogJob(stage)
    if job not in replica.records:
        return LogJob(stage, collected=True)
    if stage == "completed":
        return LogJob(stage, completed=completed, required=_required(replica, job))
    if stage == "killed":
        return LogJob(stage, failure=failure, completed=completed, required=_required(replica, job))
    run = replica.run(job)
    partitions = input_partitions(replica, job)
    return LogJob(
        "live",
        suspended=run.suspended,
        savepoint=_savepoint(replica, job),
        draining=run.draining,
        paused=why_paused(replica, job),
        options=run.declared or replica.spec(job).options,
        tasks=tuple((task, len(run.allocation.get(task, ()))) for task in replica.tasks_of(job)),
        required=_required(replica, job),
        starting=bool(run.allocation) and not run.is_ready,
        waiting_for=why_waiting(replica, job) or "",
        displaced=displaced(replica, job),
        stalled=stalled if run.allocation else "",
        deaths=sentence(deaths, job),
        deaths_reason=reason(deaths, job) if deaths else "",
        halted=halts(deaths, moved_ms),
        partitions=len(partitions),
        exhausted=sum(number in run.exhausted_partitions for number in partitions),
        completed=completed,
    )


def _savepoint(replica: Replica, job: JobId) -> str:
    old = replica.upgrades(job)
    loaded = None if old is None else replica.loaded(old)
    return "" if loaded is None else loaded.place


def _required(replica: Replica, job: JobId) -> int:
    return sum(task.min_peers for task in replica.spec(job).tasks)


def by_owner(replica: Replica, server: str) -> dict[ObjectKey, dict[str, list[JobId]]]:
    """The jobs that have not ended of objects of an API server, by name and uid."""
    found: dict[ObjectKey, dict[str, list[JobId]]] = {}
    for job in replica.jobs:
        owner = JobOwner.read(replica.spec(job).owner if job in replica.records else "")
        if owner is not None and owner.server == server:
            found.setdefault(owner.key, {}).setdefault(owner.uid, []).append(job)
    return found


def changed_jobs(old: Replica, new: Replica) -> set[JobId]:
    """The jobs about which something is different."""
    found: set[JobId] = set()
    for lists in ("jobs", "completed_jobs", "killed_jobs", "completed_before", "killed_before"):
        before, after = getattr(old, lists), getattr(new, lists)
        if before is not after:
            found |= set(before) ^ set(after)
    if old.records is not new.records:
        known = {*old.records, *new.records}
        found |= {job for job in known if _shown(old, job) != _shown(new, job)}
    return found


def _shown(replica: Replica, job: JobId) -> tuple[object, ...]:
    """What a status shows of a record."""
    run = replica.run(job)
    allocated = (run.allocation, run.allocation_version, run.is_ready)
    parts = (*allocated, run.suspended, run.draining, run.declared, run.paused, run.rested)
    return (replica.partitions(job), run.exhausted_partitions, *parts)


def jobs_that_wait(replica: Replica) -> Iterable[JobId]:
    """Jobs without peers: why may be different whenever members or other jobs change."""
    return (job for job in replica.jobs if not replica.run(job).allocation)
