"""How far what clients hand over belongs to their requests: to the windows, whose results belong to
none, and to the stages of Spark, which begin anew.

Messages of a source that hears of failures (`onFailure: source`) are requests in this: somebody
hears what has become of each.
"""

from __future__ import annotations

from onyx.model.job import CatalogEntry, Job
from onyx.model.plugins import returns_failures, takes_requests
from onyx.model.workflow import ancestors, receivers


def is_heard_of(entry: CatalogEntry) -> bool:
    """Whether somebody hears what has become of what such an input gives."""
    returns = returns_failures(entry.type, entry.plugin, entry.options)
    return returns or takes_requests(entry.type, entry.plugin)


def asked_for(job: Job) -> frozenset[str]:
    """The tasks that segments of requests come to, and what is made of these before a window."""
    found = {each.name for each in job.catalog if is_heard_of(each)}
    left = [task for task in found if not _ends_requests(job, task)]
    while left:
        for task in receivers(job, left.pop()):
            if task not in found:
                found.add(task)
                if not _ends_requests(job, task):
                    left.append(task)
    return frozenset(found)


def windows_asked_for(job: Job) -> tuple[str, ...]:
    """The tasks with windows to which segments of requests come, and behind which others are."""
    reached = asked_for(job)
    windowed = {window.task for window in job.windows}
    return tuple(sorted(task for task in windowed & reached if receivers(job, task)))


def requested_tasks(job: Job) -> dict[str, bool]:
    """The tasks whose trees are of requests, each with whether the first failure is the last."""
    if job.guarantee == "at-most-once" or job.engine == "spark":
        return {}
    windowed = {window.task for window in job.windows}
    inputs = {
        entry.name: entry.options.get("onFailure") == "answer"
        for entry in job.catalog
        if is_heard_of(entry)
    }
    found = dict(inputs)
    for entry in job.catalog if inputs else ():
        above = ancestors(job.workflow, entry.name) if entry.is_stateful else frozenset()
        read = {each.name for each in job.catalog if each.name in above and each.type == "input"}
        if entry.is_stateful and read <= set(inputs) and not ({entry.name, *above} & windowed):
            found[entry.name] = all(inputs[each] for each in read)
    return found


def _ends_requests(job: Job, task: str) -> bool:
    return job.entry(task).stage is not None or any(each.task == task for each in job.windows)
