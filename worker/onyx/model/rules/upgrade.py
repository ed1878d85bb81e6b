"""Rules of the resume point; whether the other job has what is asked for is seen in `upgrade`."""

from __future__ import annotations

from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, listed, nearest, show
from onyx.model.rules.looking import good, known_tasks, whole

_KEPT = "nothing is kept at most once; choose at-least-once or exactly-once"


def check_resume_point(spec: Draft, path: str, report: Report) -> None:
    """What it speaks of exists, and has something that can be carried over."""
    point = good(spec, "resume_point")
    resumes = good(spec, "upgrade_policy") == "Resume"
    kept = good(spec, "guarantee") != "at-most-once"
    if resumes and not kept:
        report.add(at(path, "upgradePolicy"), "Resume is not for guarantee at-most-once", _KEPT)
    if point is None:
        return
    path = at(path, "resumePoint")
    if "job" not in point and not resumes:
        hint = "give the id of the other job, or upgradePolicy: Resume"
        report.add(at(path, "job"), "is missing", hint)
    if not kept:
        report.add(path, "is not for guarantee at-most-once", _KEPT)
    if whole(spec, "windows") or "windows" not in spec:
        windows = {good(each, "id") for each in good(spec, "windows") or ()}
        _check_names(point, "windows", windows - {None}, at(path, "windows"), report)
    if known_tasks(spec) is not None and (whole(spec, "windows") or "windows" not in spec):
        keeping = {good(each, "task") for each in good(spec, "windows") or ()}
        kinds = {each["name"]: good(each, "type") for each in spec["catalog"]}
        keeping |= {name for name, kind in kinds.items() if kind in ("input", "output", None)}
        _check_names(point, "tasks", keeping - {None}, at(path, "tasks"), report)


def _check_names(point: Draft, key: str, known: set[str], path: str, report: Report) -> None:
    for name in good(point, key) or ():
        if name not in known:
            others = f"those that have: {listed(sorted(known))}" if known else ""
            hint = nearest(name, sorted(known)) or others
            report.add(at(path, name), f"{show(name)} has no state that is carried over", hint)
