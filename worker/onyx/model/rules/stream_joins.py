"""Rules of joins of two streams."""

from __future__ import annotations

from onyx.model import names
from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, listed, nearest, show
from onyx.model.rules.looking import entries, good
from onyx.model.workflow import children, parents

JOIN = "join"
_REFUSED = ("fn", "params", "tables", "batch_fn", "schema", "required", "options")
"""Keys of any task that do nothing in a join. Others say themselves for which types they are."""


def check_stream_join(draft: Draft, path: str, report: Report) -> None:
    """A join has two sides, and one measure of how near two segments are."""
    if good(draft, "type") != JOIN:
        return
    for field in _REFUSED:
        if field in draft:
            what = "is not for a join, which calls nothing"
            hint = "give it to a task before or after the join"
            report.add(at(path, names.yaml_key(field)), what, hint)
    left, right = good(draft, "left") or {}, good(draft, "right") or {}
    _check_keys(left, right, at(path, "right"), report)
    if good(draft, "how") == "asof":
        _check_asof(draft, path, report)
    elif "within" in draft and "range" in draft:
        hint = "keep within for times that are near, or range for extents"
        report.add(at(path, "range"), "is given together with within", hint)
    elif "within" not in draft and "range" not in draft:
        what = "is missing, so that every segment would be kept for ever"
        hint = "give within: {before: [1, hour], after: [1, hour]}, or range: [1, hour]"
        report.add(at(path, "within"), what, hint)


def _check_keys(left: Draft, right: Draft, path: str, report: Report) -> None:
    if good(left, "task") is not None and good(left, "task") == good(right, "task"):
        what = f"is {show(good(left, 'task'))} on both sides, whose segments would be of either"
        hint = "put a function between the task and one side of the join"
        report.add(at(path, "task"), what, hint)
    mine, others = (_many(good(each, "key")) for each in (left, right))
    if mine and others and mine != others:
        what = f"has {others} parts, and that of the left side {mine}"
        report.add(at(path, "key"), what, "give as many, in the same order")


def _check_asof(draft: Draft, path: str, report: Report) -> None:
    if "range" in draft:
        hint = "remove it, or give within: {before: ...}"
        report.add(at(path, "range"), "is not for how: asof, which looks for the latest", hint)
    within = good(draft, "within")
    if within is not None and "after" in within:
        what = "is not for how: asof, where the right side is never later"
        report.add(at(at(path, "within"), "after"), what, "remove it")


def check_stream_joins(spec: Draft, path: str, report: Report) -> None:
    """The sides of a join are its parents, and late segments go to a child."""
    edges = good(spec, "workflow")
    if edges is None:
        return
    above, below = parents(edges), children(edges)
    for draft, where in entries(spec, "catalog", path, "catalog"):
        name = good(draft, "name")
        if good(draft, "type") != JOIN or name not in above:
            continue
        _check_parents(draft, above[name], where, report)
        target = good(draft, "late_to")
        if target is not None and target not in below[name]:
            hint = nearest(target, below[name]) or f"name an output, or a task after {name}"
            report.add(at(where, "lateTo"), f"{show(target)} is not a child of {name}", hint)


def _check_parents(draft: Draft, above: tuple[str, ...], path: str, report: Report) -> None:
    name, named = good(draft, "name"), set()
    for side in ("left", "right"):
        task = good(good(draft, side) or {}, "task")
        named.add(task)
        if task is not None and task not in above:
            hint = nearest(task, above) or f"add the edge [{task}, {name}] to the workflow"
            where = at(at(path, side), "task")
            report.add(where, f"{show(task)} is not a parent of {name}", hint)
    others = [each for each in above if each not in named]
    if others and None not in named:
        what = f"has parents that are of neither side: {listed(others)}"
        report.add(at(path, "name"), what, "join them in another join, before or after this one")


def _many(key: str | tuple[str, ...] | None) -> int:
    if key is None:
        return 0
    return 1 if isinstance(key, str) else len(key)
