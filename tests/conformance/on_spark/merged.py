"""Many jobs as one: their tasks side by side under longer names, each job with outputs of its own.
A job with a Spark stage in the middle stays alone and keeps its names, for DataFrames have them.

A query of Spark takes seconds and a cluster does too, however little they have to do. As parts of
one job, a hundred small ones take as long as one. What the jobs write goes to files, and what is
said of the whole job (`guarantee`, `engine`) is that of the merged one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx.model.job import CatalogEntry, FlowCondition, Job, Trigger, Window

Rows = dict[str, list[dict[str, Any]]]
"""By task, what an output of a job has written."""
TASKS_MAX = 256
"""Of one job."""
WORDS = ("all", "none")


def merged(jobs: Mapping[str, Job], folder: Path) -> Job:
    """One job of all these.

    Args:
        jobs: by a name that is good for a task. Either all assign watermarks or none does, because
            windows of a job without any take their segments for watermarks.
        folder: for what they write.
    """
    parts = [
        job if has_stage(job) else _renamed(job, f"j{n}-") for n, job in enumerate(jobs.values())
    ]
    catalog = [
        _written_to(folder / name / old.name, entry)
        for (name, job), part in zip(jobs.items(), parts, strict=True)
        for old, entry in zip(job.catalog, part.catalog, strict=True)
    ]
    return Job(
        "merged",
        tuple(edge for part in parts for edge in part.workflow),
        tuple(catalog),
        guarantee="exactly-once",
        flow_conditions=tuple(each for part in parts for each in part.flow_conditions),
        windows=tuple(replace(each, engine="peers") for part in parts for each in part.windows),
        triggers=tuple(each for part in parts for each in part.triggers),
    )


def packed(jobs: Mapping[str, Job]) -> list[dict[str, Job]]:
    """The jobs as `merged` takes them: few lots, each of jobs that assign watermarks or of such
    that do not, and no larger than a job may be."""
    lots = [{name: job} for name, job in jobs.items() if has_stage(job)]
    for assigning in (True, False):
        size = TASKS_MAX
        for name, job in jobs.items():
            if any(map(_assigns, job.catalog)) is not assigning or has_stage(job):
                continue
            size += len(job.catalog)
            if size > TASKS_MAX:
                lots.append({})
                size = len(job.catalog)
            lots[-1][name] = job
    return lots


def written(jobs: Mapping[str, Job], folder: Path) -> dict[str, Rows]:
    """What the jobs have written to a folder, by job and output."""
    return {
        name: {
            entry.name: rows_of(folder / name / entry.name)
            for entry in job.catalog
            if entry.type == "output" and entry.plugin != "blackhole"
        }
        for name, job in jobs.items()
    }


def has_stage(job: Job) -> bool:
    """Whether a Spark stage is in the middle of it."""
    return any(entry.stage is not None for entry in job.catalog)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of JSON lines that were published in a folder."""
    texts = [path.read_text("utf-8") for path in sorted(folder.glob("part-*.jsonl"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def _assigns(entry: CatalogEntry) -> bool:
    return entry.watermark_key is not None or entry.assign_watermark_fn is not None


def _written_to(folder: Path, entry: CatalogEntry) -> CatalogEntry:
    if entry.stage is not None:
        return replace(entry, options={**entry.options, "path": str(folder)})
    if entry.type != "output" or entry.plugin == "blackhole":
        return entry
    options = {"path": str(folder), "format": "jsonl"}
    return replace(entry, plugin="files", options={**_params(entry), **options})


def _params(entry: CatalogEntry) -> dict[str, Any]:
    return {key: entry.options[key] for key in entry.params}


def _renamed(job: Job, prefix: str) -> Job:
    def name(task: str | None) -> Any:
        return task if task is None or task in WORDS else f"{prefix}{task}"

    def names(tasks: Any) -> Any:
        if isinstance(tasks, str) or tasks is None:
            return name(tasks)
        return tuple(map(name, tasks))

    def entry(each: CatalogEntry) -> CatalogEntry:
        join = each.join and replace(each.join, table=name(each.join.table))
        sides = each.left, each.right
        left, right = (side and replace(side, task=name(side.task)) for side in sides)
        return replace(
            each, name=name(each.name), join=join, tables=names(each.tables), left=left,
            right=right, dead_letter=name(each.dead_letter), late_to=name(each.late_to),
            loop_to=name(each.loop_to),
        )  # fmt: skip

    def condition(each: FlowCondition) -> FlowCondition:
        begins = each.from_task
        if begins in ("all", ("all",)):  # of this job
            begins = tuple(dict.fromkeys(parent for parent, _ in job.workflow))
        errors = names(each.predicate_errors_to)
        return replace(each, from_task=names(begins), to=names(each.to), predicate_errors_to=errors)

    def window(each: Window) -> Window:
        return replace(each, id=name(each.id), task=name(each.task), late_to=name(each.late_to))

    def trigger(each: Trigger) -> Trigger:
        return replace(each, window_id=name(each.window_id))

    return msgspec.structs.replace(
        job,
        workflow=tuple((name(parent), name(child)) for parent, child in job.workflow),
        catalog=tuple(map(entry, job.catalog)),
        flow_conditions=tuple(map(condition, job.flow_conditions)),
        windows=tuple(map(window, job.windows)),
        triggers=tuple(map(trigger, job.triggers)),
    )
