"""Rules of `combine`: states may travel in place of segments only where that gives the same.

The rules look at the job as a whole (`model.combining`), so they are asked of one that has no other
problem.
"""

from __future__ import annotations

from onyx.model.combining import against_combining_on_peers
from onyx.model.job import Job
from onyx.model.keys.fields import section_of
from onyx.model.keys.section import Draft
from onyx.model.report import Report, at
from onyx.model.rules.looking import entries, good

_SPEC = section_of(Job)


def check_combining(spec: Draft, path: str, report: Report) -> None:
    """A task that is combined has windows, and all of them can be."""
    combined = {
        good(draft, "name"): at(where, "combine")
        for draft, where in entries(spec, "catalog", path, "catalog")
        if good(draft, "combine")
    }
    if not combined or report or good(spec, "engine") == "spark":
        return
    job = _SPEC.build(spec, name="")
    assert isinstance(job, Job)
    for task, where in combined.items():
        windows = [each for each in job.windows if each.task == task]
        if not windows:
            report.add(where, "has no effect on a task without windows", "remove it")
        for window in windows:
            against = against_combining_on_peers(job, window)
            if against:
                what = f"is not possible with window {window.id}: {against}"
                report.add(where, what, "remove it, or change that")
