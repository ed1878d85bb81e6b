"""Rules of lifecycles."""

from __future__ import annotations

from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, nearest, show
from onyx.model.rules.looking import entries, good, known_tasks


def check_tasks(spec: Draft, path: str, report: Report) -> None:
    """Lifecycles are about tasks of the catalog."""
    known = known_tasks(spec)
    for draft, where in entries(spec, "lifecycles", path, "lifecycles"):
        task = good(draft, "task")
        if task is not None and task != "all" and known is not None and task not in known:
            hint = nearest(task, sorted(known))
            report.add(at(where, "task"), f"{show(task)} is not in the catalog", hint)
