"""From a job to the `submit-job` entry: what scheduling must know of it, and where the rest lies.

The job itself is a chunk beside the log, under its digest; the entry stays small whatever options,
windows and conditions the job has.
"""

from __future__ import annotations

import math
from typing import Any

from onyx.errors import JobRefused
from onyx.ids import JobId
from onyx.model.job import CatalogEntry, Job
from onyx.model.workflow import topological_order
from onyx.replica.canonical import INFINITY
from onyx.replica.entry import Command


def submission(
    job_id: JobId, job: Job, digest: str, job_scheduler: str, owner: str = ""
) -> Command:
    """The entry that submits a job.

    `digest` is the content address of the job in the chunk store. `job_scheduler` is the one of the
    cluster. `owner`: who ends it, see `Args`.

    Raises:
        JobRefused: the job has a percentage, which the scheduler of the cluster does not read.
    """
    if job.percentage is not None and job_scheduler != "percentage":
        raise JobRefused(
            f"job {job.name!r} has a percentage, which has no effect: the job scheduler of this "
            f"cluster is {job_scheduler}, and only percentage reads it; leave it out"
        )
    tasks = topological_order(job.workflow)
    entries = {task: job.entry(task) for task in tasks}
    windowed = {window.task for window in job.windows}
    most = {task: _most(entry, task in windowed) for task, entry in entries.items()}
    args: dict[str, Any] = {
        "id": job_id,
        "digest": digest,
        "tasks": list(tasks),
        "inputs": [task for task in tasks if entries[task].type == "input"],
        "outputs": [task for task in tasks if entries[task].type == "output"],
        **_state(job, tasks),
        "task-scheduler": job.task_scheduler,
        "saturation": _text(sum(most.values())),
        "task-saturation": {task: _text(each) for task, each in most.items()},
        "min-required-peers": {task: _least(entry) for task, entry in entries.items()},
        "flux-policies": {
            task: entry.flux_policy for task, entry in entries.items() if entry.flux_policy
        },
        "required-tags": {
            task: list(entry.required_tags)
            for task, entry in entries.items()
            if entry.required_tags
        },
        "exempt-tasks": list(job.acker_exempt_tasks),
        "acker-percentage": job.acker_percentage,
        "acker-exclude-inputs": job.acker_exempt_input_tasks,
        "acker-exclude-outputs": job.acker_exempt_output_tasks,
    }
    if job.upgrade is not None and job.upgrade.from_job is not None:
        args["resumes"] = job.upgrade.from_job
    if owner:
        args["owner"] = owner
    return Command("submit-job", {**args, **_percentages(job, tasks)})


def _state(job: Job, tasks: tuple[str, ...]) -> dict[str, Any]:
    """Whether the job keeps state logs, and its windowed tasks. At-most-once has neither: the end
    of a job is passed on from task to task."""
    found = [task for task in tasks if any(window.task == task for window in job.windows)]
    if job.guarantee == "at-most-once" or not (found or job.guarantee == "exactly-once"):
        return {}
    return {"stateful": True, **({"windowed": found} if found else {})}


def _percentages(job: Job, tasks: tuple[str, ...]) -> dict[str, Any]:
    """Shares are written only for the schedulers that use them."""
    found: dict[str, Any] = {}
    if job.percentage is not None:
        found["percentage"] = job.percentage
    if job.task_scheduler == "percentage":
        shares = {task: job.entry(task).percentage for task in tasks}
        found["task-percentages"] = {t: share for t, share in shares.items() if share is not None}
    return found


def _least(entry: CatalogEntry) -> int:
    return entry.n_peers or entry.min_peers or 1


def _most(entry: CatalogEntry, windowed: bool) -> float:
    """Without grouping, one peer holds all state and gets all segments: others would be idle."""
    if windowed and entry.group_by_key is None and entry.group_by_fn is None:
        return _least(entry)
    return entry.n_peers or entry.max_peers or math.inf


def _text(count: float) -> int | str:
    return INFINITY if math.isinf(count) else int(count)
