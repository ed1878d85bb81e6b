"""Rules of `spec.upgrade`; `onyx.upgrade` compares it with the old job."""

from __future__ import annotations

from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, listed, nearest, show
from onyx.model.rules.looking import good, known_tasks, tasks_with_state, whole

_NO_STATE = "at most once keeps no state; choose at-least-once or exactly-once"


def check_upgrade(spec: Draft, path: str, report: Report) -> None:
    """Names exist and have state to carry over; an old job is named where no policy implies it."""
    upgrade = good(spec, "upgrade")
    keeps_state = good(spec, "upgrade_policy") == "KeepState"
    has_state = good(spec, "guarantee") != "at-most-once"
    if keeps_state and not has_state:
        what = "KeepState is not for guarantee at-most-once"
        report.add(at(path, "upgradePolicy"), what, _NO_STATE)
    if upgrade is None:
        return
    path = at(path, "upgrade")
    if not {"from_job", "savepoint"}.intersection(upgrade) and not keeps_state:
        hint = "give the id of the old job, a savepoint, or upgradePolicy: KeepState"
        report.add(at(path, "from"), "is missing", hint)
    if {"from_job", "savepoint"} <= upgrade.keys():
        what = "is not for a job that upgrades another one"
        report.add(at(path, "savepoint"), what, "leave out `from`, or this")
    if not has_state:
        report.add(path, "is not for guarantee at-most-once", _NO_STATE)
    if whole(spec, "windows") or "windows" not in spec:
        windows = {good(each, "id") for each in good(spec, "windows") or ()}
        _check_names(upgrade, "windows", windows - {None}, at(path, "windows"), report)
    if known_tasks(spec) is not None and (whole(spec, "windows") or "windows" not in spec):
        keeping = {name for name in tasks_with_state(spec, path) if name is not None}
        kinds = {each["name"]: good(each, "type") for each in spec["catalog"]}
        keeping |= {name for name, kind in kinds.items() if kind in ("input", "output", None)}
        _check_names(upgrade, "tasks", keeping - {None}, at(path, "tasks"), report)


def _check_names(upgrade: Draft, key: str, known: set[str], path: str, report: Report) -> None:
    for name in good(upgrade, key) or ():
        if name not in known:
            others = f"those that have: {listed(sorted(known))}" if known else ""
            hint = nearest(name, sorted(known)) or others
            report.add(at(path, name), f"{show(name)} has no state that is carried over", hint)
