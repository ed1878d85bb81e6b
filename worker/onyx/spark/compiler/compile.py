"""Which fragment runs which task.

A task behind a shuffle (grouped, or with state) begins the fragment after the last one that sends
to it, and so do the rows of a Spark stage of the user; every other task runs wherever its parents
do. One row of fragments for the whole job, instead of one query for each
output, because a source must be read once: Spark computes a frame anew for each action on it.

The workflow is cut above each Spark stage in the middle (`below`, `above`): what such a stage gives
is not what came to it. The rows begin anew, as those of an input do, and no watermark goes past it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from onyx.errors import ManifestError
from onyx.model.combining import against_combining, assigns_watermarks
from onyx.model.job import CatalogEntry, Job, Window
from onyx.model.workflow import (
    children,
    is_unbounded,
    ordered_parents,
    parents,
    stateful_tasks,
    topological_order,
)
from onyx.spark.compiler.plan import Exchange, Fragment, Middle, Plan, PlannedOutput, PlannedWindow
from onyx.spark.compiler.refusals import refusals

_HOW: dict[str, Literal["staged", "spooled", "called", "dropped"]] = {
    "files": "staged", "spark": "staged", "stdout": "spooled", "function": "called",
    "blackhole": "dropped",
}  # fmt: skip


def compile_job(job: Job, combine: bool = True) -> Plan:
    """The plan of a job.

    Args:
        combine: whether windows may be folded before a shuffle.

    Raises:
        ManifestError: Spark cannot run the job; it lists everything that stands against it.
    """
    problems = refusals(job)
    if problems:
        raise ManifestError(problems)
    runs_in = _fragments(job)
    order = topological_order(job.workflow)
    count = 1 + max(max(numbers) for numbers in runs_in.values())
    shuffled = {task for task in order if _is_shuffled(job, task)}
    fragments = tuple(
        Fragment(
            number,
            tuple(task for task in order if runs_in[task] == {number} and _begins(job, task)),
            tuple(task for task in order if number in runs_in[task]),
        )
        for number in range(count)
    )
    exchanges = [
        _exchange(job, task, max(runs_in[task]), combine) for task in order if task in shuffled
    ]
    outputs = tuple(
        PlannedOutput(task, plugin, _HOW[plugin])
        for task in order
        if (entry := job.entry(task)).type == "output" and (plugin := entry.plugin or "")
    )
    ordered = tuple(sorted(exchanges, key=lambda each: each.fragment))
    return Plan(job.name, fragments, ordered, outputs, is_unbounded(job), _middles(job, runs_in))


def _middles(job: Job, runs_in: Mapping[str, set[int]]) -> tuple[Middle, ...]:
    above = parents(job.workflow)
    found = [
        Middle(entry.name, max(runs_in[entry.name]), entry.stage, above[entry.name])
        for entry in job.catalog
        if entry.stage is not None
    ]
    return tuple(sorted(found, key=lambda each: (each.fragment, each.task)))


def _fragments(job: Job) -> dict[str, set[int]]:
    """By task, the fragments that it runs in."""
    above = parents(job.workflow)
    runs_in: dict[str, set[int]] = {}
    for task in topological_order(job.workflow):
        before = set[int]().union(*(runs_in[parent] for parent in above[task]))
        if not before:
            runs_in[task] = {0}
        elif _begins(job, task):
            runs_in[task] = {1 + max(before)}
        else:
            runs_in[task] = before
    return runs_in


def _begins(job: Job, task: str) -> bool:
    entry = job.entry(task)
    return entry.type == "input" or entry.stage is not None or _is_shuffled(job, task)


def _is_shuffled(job: Job, task: str) -> bool:
    return _key(job.entry(task)) is not None or task in stateful_tasks(job)


def _key(entry: CatalogEntry) -> str | None:
    if entry.sides:
        return " = ".join(", ".join(side.keys) for side in entry.sides)
    if entry.group_by_fn is not None:
        return entry.group_by_fn
    keys = entry.group_by_key
    return keys if keys is None or isinstance(keys, str) else ", ".join(keys)


def _exchange(job: Job, task: str, fragment: int, combine: bool) -> Exchange:
    entry, windows = job.entry(task), [each for each in job.windows if each.task == task]
    assigned = any(assigns_watermarks(job.entry(each)) for each in all_above(job, task))
    against = [_against(job, each, combine) for each in windows]
    planned = tuple(
        PlannedWindow(each.id, each.type, _aggregation(each), not any(against), reason)
        for each, reason in zip(windows, _with_others(against), strict=True)
    )
    together = bool(windows) and not any(against)
    marks = _watermarks(job, task, together) if assigned else "none"
    inbox = entry.processor is not None
    ends = marks != "none" or is_unbounded(job) or inbox
    above = ordered_parents(job.workflow, task) if inbox else [side.task for side in entry.sides]
    return Exchange(task, fragment, _key(entry), planned, marks, ends, tuple(above), always=inbox)


def _against(job: Job, window: Window, combine: bool) -> str:
    if is_unbounded(job) and window.allowed_lateness is not None:
        return "a micro-batch has to know what is late"
    if not combine:
        return "segments are behind the watermark"
    assigned = any(map(assigns_watermarks, job.catalog))
    below = (each.name for each in job.catalog if each.is_stateful)
    if assigned and any(window.task in all_above(job, each) for each in below):
        return "tasks with state below it hear each watermark"
    return against_combining(job, window, assigned)


def _with_others(against: list[str]) -> list[str]:
    """Windows of a task get the same rows, so all of them are combined or none is."""
    return [
        each or ("another one of its task cannot be" if any(against) else "") for each in against
    ]


def _watermarks(job: Job, task: str, combined: bool) -> Literal["none", "segments", "batches"]:
    windows = [each for each in job.windows if _is_heard(job, task, each.task)]
    others = [each for each in job.catalog if each.is_stateful and _is_heard(job, task, each.name)]
    if not windows and not others:
        return "none"
    if combined:
        return "segments"
    # What comes late, or when a timer is due, follows from where event time is at each batch.
    by_time = others or any(each.allowed_lateness is not None for each in windows)
    return "batches" if by_time else "segments"


def _is_heard(job: Job, task: str, by: str) -> bool:
    return task == by or task in all_above(job, by)


def _aggregation(window: Window) -> str:
    found = window.aggregation
    return found if isinstance(found, str) else " ".join(found)


def below(job: Job) -> dict[str, tuple[str, ...]]:
    """For each task those that its segments reach as such."""
    return {
        task: tuple(each for each in its if job.entry(each).stage is None)
        for task, its in children(job.workflow).items()
    }


def above(job: Job) -> dict[str, tuple[str, ...]]:
    """For each task those whose segments reach it as such."""
    return {
        task: its if job.entry(task).stage is None else ()
        for task, its in parents(job.workflow).items()
    }


def all_above(job: Job, task: str) -> frozenset[str]:
    """All tasks whose event time reaches a task."""
    edges, found = above(job), set[str]()
    waiting = list(edges[task])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += edges[name]
    return frozenset(found)
