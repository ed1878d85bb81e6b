"""From a job to what scheduling must know of it. Whoever asks how many peers a job needs loads no
command of the log for that: `client.submissions` makes the one that has it.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

from onyx.ids import JobId, TaskName
from onyx.model.changing import fingerprint
from onyx.model.job import CatalogEntry, Job
from onyx.model.keys.kinds import JOB_ID
from onyx.model.plugins import keeps_journal, keeps_processed, runs_spark
from onyx.model.workflow import sources_above, stateful_tasks, topological_order
from onyx.replica.spec import METADATA_MAX, SPARK_TAG, WORD_CHARACTERS_MAX, JobSpec, TaskSpec

DRIVER = TaskName("spark")
"""The only task of a job that Spark runs, whatever its manifest has."""


def spec_of(job: Job, digest: str = "", owner: str = "") -> JobSpec:
    """What the log says of a job.

    Args:
        digest: content address of the job in the chunk store.
        owner: see `JobSpec`.
    """
    if job.engine == "spark":
        return _of_spark(job, digest, owner)
    windowed = stateful_tasks(job)
    # At-most-once has no state logs and no trees at windows: the end of a job goes from task to
    # task.
    tracked = job.guarantee != "at-most-once"
    tasks = tuple(
        _task(job, TaskName(name), name in windowed, tracked)
        for name in topological_order(job.workflow)
    )
    limits = [task.max_peers for task in tasks if task.max_peers is not None]
    return JobSpec(
        tasks=tasks,
        task_scheduler=job.task_scheduler,
        max_peers=sum(limits) if len(limits) == len(tasks) else None,
        percentage=job.percentage,
        priority=job.priority,
        acker_percentage=job.acker_percentage if job.ackers is None else None,
        ackers=job.ackers,
        acker_exclude_inputs=job.acker_exempt_input_tasks,
        acker_exclude_outputs=job.acker_exempt_output_tasks,
        stateful=_keeps_state(job),
        followed=any(keeps_processed(each.type, each.plugin, each.options) for each in job.catalog),
        digest=digest,
        options=fingerprint(job),
        upgrades=upgraded_by(job),
        owner=owner,
        name=job.name,
        metadata=_metadata(job),
    )


def needs_spark(job: Job) -> str | None:
    """The path of the first key for which workers need Spark; None if there is none."""
    if job.engine == "spark":
        return "spec.engine"
    tags = (_tags(job, entry) for entry in job.catalog)
    return next((f"spec.catalog[{n}]" for n, each in enumerate(tags) if SPARK_TAG in each), None)


def _metadata(job: Job) -> dict[str, str | int | float | bool]:
    """What a line of a log can have of the metadata; the id of the job is in each."""
    plain = {
        key: value[:WORD_CHARACTERS_MAX] if isinstance(value, str) else value
        for key, value in job.metadata.items()
        if key != JOB_ID and len(key) <= WORD_CHARACTERS_MAX and _is_plain(value)
    }
    return dict(islice(plain.items(), METADATA_MAX))


def _is_plain(value: Any) -> bool:
    if isinstance(value, int | float):
        return math.isfinite(value) and abs(value) < 1 << 63
    return isinstance(value, str)


def _keeps_state(job: Job) -> bool:
    """Whether the job keeps state logs or journals."""
    if any(keeps_journal(entry.type, entry.plugin, entry.options) for entry in job.catalog):
        return True
    tracked = job.guarantee != "at-most-once"
    return tracked and (bool(stateful_tasks(job)) or job.guarantee == "exactly-once")


def _of_spark(job: Job, digest: str, owner: str) -> JobSpec:
    """A job that Spark runs has one peer, which holds the driver of its query. It needs the tags
    of all tasks of the manifest, because all of them run there."""
    tags = {tag: None for entry in job.catalog for tag in entry.required_tags}
    tags[SPARK_TAG] = None
    driver = TaskSpec(name=DRIVER, input=True, output=True, max_peers=1, required_tags=tuple(tags))
    return JobSpec(
        tasks=(driver,),
        task_scheduler="balanced",
        max_peers=1,
        percentage=job.percentage,
        priority=job.priority,
        acker_percentage=job.acker_percentage,
        stateful=bool(stateful_tasks(job)),
        digest=digest,
        upgrades=upgraded_by(job),
        owner=owner,
        name=job.name,
        metadata=_metadata(job),
    )


def upgraded_by(job: Job) -> JobId | None:
    """The job that a job upgrades."""
    old = None if job.upgrade is None else job.upgrade.from_job
    return None if old is None else JobId(old)


def _task(job: Job, name: TaskName, windowed: bool, tracked: bool) -> TaskSpec:
    entry = job.entry(name)
    middle = entry.stage is not None
    return TaskSpec(
        name=name,
        input=entry.type == "input" or middle,
        output=entry.type == "output" or middle,
        fed_by=tuple(map(TaskName, sources_above(job, name))) if middle else (),
        windowed=windowed and tracked,
        min_peers=_least(entry),
        max_peers=_most(entry, windowed),
        percentage=entry.percentage if job.task_scheduler == "percentage" else None,
        flux_policy=entry.flux_policy,
        required_tags=_tags(job, entry),
        acker_exempt=name in job.acker_exempt_tasks,
    )


def _tags(job: Job, entry: CatalogEntry) -> tuple[str, ...]:
    fires = any(each.task == entry.name and each.engine == "spark" for each in job.windows)
    runs = fires or entry.stage is not None or runs_spark(entry.type, entry.plugin)
    of_spark = (SPARK_TAG,) if runs else ()
    return tuple(dict.fromkeys((*entry.required_tags, *of_spark)))


def _least(entry: CatalogEntry) -> int:
    return entry.n_peers or entry.min_peers or 1


def _most(entry: CatalogEntry, windowed: bool) -> int | None:
    """Without grouping, one peer holds all state and gets all segments: others would be idle."""
    if windowed and not entry.is_grouped:
        return _least(entry)
    return entry.n_peers or entry.max_peers
