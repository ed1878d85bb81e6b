"""The end of jobs, and what is kept of them: shared by the commands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from onyx.ids import JobId, PeerId, TaskName
from onyx.replica.members import without
from onyx.replica.state import NOTHING, Replica

RUN_KEYS = (
    "suspended_jobs",
    "draining_jobs",
    "allocations",
    "task_slot_ids",
    "ackers",
    "allocation_version",
    "exhausted_partitions",
    "exhausted_inputs",
    "sealed_outputs",
    "sealers",
    "restarts",
    "suspects",
    "losses",
    "loss_reports",
)
"""What a job has only while it runs."""

STATE_KEYS = ("partitions",)
"""What a killed job keeps, for a job that upgrades it."""


def is_known(replica: Replica, job: JobId) -> bool:
    """Whether the id is taken: the job runs, or has ended and was not collected."""
    return job in replica.jobs or job in replica.completed_jobs or job in replica.killed_jobs


def kill(replica: Replica, job: JobId) -> Replica:
    """The job is killed; its partitions stay, for a job that upgrades it needs them."""
    return replace(_stop(replica, job), killed_jobs=(*replica.killed_jobs, job))


def kill_by_flux(replica: Replica, leaving: Iterable[PeerId]) -> Replica:
    """Kill the jobs that lose a peer on a task of flux policy `kill`."""
    for peer in leaving:
        place = assignment(replica, peer)
        if place is not None:
            job, task = place
            if replica.specs[job].by_name[task].flux_policy == "kill":
                replica = kill(replica, job)
    return replica


def complete(replica: Replica, job: JobId) -> Replica:
    """The job is complete; only its spec stays."""
    stopped = _clear(_stop(replica, job), STATE_KEYS, (job,))
    return replace(stopped, completed_jobs=(*replica.completed_jobs, job))


def forget(replica: Replica, jobs: Iterable[JobId]) -> Replica:
    """Everything about jobs that have ended."""
    return _clear(replica, (*RUN_KEYS, *STATE_KEYS, "upgrades", "specs"), tuple(jobs))


def input_partitions(replica: Replica, job: JobId) -> list[int]:
    """Numbers of the partitions that inputs read; those of windowed tasks are not among them."""
    registered = replica.partitions.get(job, NOTHING)
    inputs = [registered[task] for task in replica.specs[job].inputs if task in registered]
    return [n for each in inputs for n in range(each.first, each.first + each.count)]


def end_without_outputs(replica: Replica, job: JobId) -> Replica:
    """A job that has nothing to seal is complete when all its sources are exhausted."""
    if job not in replica.jobs or replica.specs[job].outputs:
        return replica
    return complete(replica, job) if all_exhausted(replica, job) else replica


def all_exhausted(replica: Replica, job: JobId) -> bool:
    """Whether a running job has read and completed all that its sources have."""
    exhausted = replica.exhausted_inputs.get(job, NOTHING)
    return all(task in exhausted for task in replica.specs[job].sources)


def assignment(replica: Replica, peer: PeerId) -> tuple[JobId, TaskName] | None:
    """The job and task that a peer is allocated to."""
    for job in replica.jobs:
        for task, peers in replica.allocations.get(job, NOTHING).items():
            if peer in peers:
                return job, task
    return None


def _stop(replica: Replica, job: JobId) -> Replica:
    stopped = _clear(replica, RUN_KEYS, (job,))
    return replace(stopped, jobs=tuple(each for each in replica.jobs if each != job))


def _clear(replica: Replica, keys: tuple[str, ...], jobs: tuple[JobId, ...]) -> Replica:
    cleared: dict[str, Any] = {key: without(getattr(replica, key), *jobs) for key in keys}
    return replace(replica, **cleared)
