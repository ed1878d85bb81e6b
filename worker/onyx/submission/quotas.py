"""What one job may have of a cluster: how many peers, and which priority.

Who owns a cluster says so: in an OnyxCluster, for its OnyxJobs, and in the settings of commands and
programs that submit. A job that cannot run within the limits is refused with the key to change,
before anything is stored. What it could take beyond them is cut where the log holds what scheduling
knows of it, so every replica keeps the limit, whatever its own settings are, and a job keeps the
one under which it was submitted.

All jobs together have the workers of the cluster, and a namespace has its own clusters: a limit on
their sum is the number of workers. Rejected: quotas as an entry of the log. Whoever may write to
the log could change it, and nobody else submits.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from onyx.errors import Problem
from onyx.model.job import Job
from onyx.model.report import at
from onyx.replica.needs import peers_needed
from onyx.replica.scheduling.explain import TASKS_NAMED_MAX
from onyx.replica.spec import JobSpec
from onyx.settings import LogSettings


def over_quota(job: Job, limits: LogSettings) -> tuple[Problem, ...]:
    """What a job asks for beyond the limits."""
    return tuple(_over(job, limits))


def _over(job: Job, limits: LogSettings) -> Iterator[Problem]:
    if job.priority > limits.job_priority_max:
        what = f"is {job.priority}, and no job of this cluster may have more than "
        whose = "(ONYX_LOG_JOB_PRIORITY_MAX; quotas.priority of an OnyxCluster)"
        yield Problem("spec.priority", f"{what}{limits.job_priority_max} {whose}", "lower it")
    most, needed = limits.job_peers_max, peers_needed(job) if limits.job_peers_max else {}
    if sum(needed.values()) > most:
        tasks = [f"{task} {count}" for task, count in needed.items()][:TASKS_NAMED_MAX]
        named = ", ".join(tasks) + (", ..." if len(tasks) < len(needed) else "")
        yield Problem(
            _largest(job),
            f"makes the job need {sum(needed.values())} peers ({named}), and no job of this "
            f"cluster may have more than {most} (ONYX_LOG_JOB_PEERS_MAX; quotas.peersPerJob of an "
            "OnyxCluster)",
            "lower it, or join tasks",
        )


def _largest(job: Job) -> str:
    """The key by which a job needs most peers; the catalog, if it has so many tasks."""
    least = [entry.n_peers or entry.min_peers or 1 for entry in job.catalog]
    index = max(range(len(least)), key=least.__getitem__)
    if least[index] == 1:
        return "spec.catalog"
    key = "nPeers" if job.catalog[index].n_peers else "minPeers"
    return at(at("spec.catalog", index), key)


def within_quota(spec: JobSpec, limits: LogSettings) -> JobSpec:
    """What the log says of a job that is submitted under the limits."""
    most = limits.job_peers_max
    if not most or (spec.max_peers is not None and spec.max_peers <= most):
        return spec
    return replace(spec, max_peers=most)
