"""The workflow as segments flow in it: cut above each Spark stage in the middle.

What such a stage gives is not what came to it: the rows begin anew, as those of an input do, and
no watermark goes past it.
"""

from __future__ import annotations

from onyx.model.job import Job
from onyx.model.workflow import children, parents


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
