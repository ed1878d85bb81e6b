"""Rules of dead letters, and the edges on which these and late segments go. Naming the task that
gets them makes the edge to it: a job in which six tasks share one would have to say so six times
more."""

from __future__ import annotations

from collections.abc import Iterator

from onyx.model import workflow
from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, nearest, show
from onyx.model.rules.looking import entries, good, known_tasks


def add_edges(spec: Draft) -> None:
    """Complete the workflow of a draft. What rules refuse is left out, so that it is reported
    once."""
    if good(spec, "workflow") is None:
        return
    types = _types(spec)
    for name, target in aside(spec):
        edges = spec["workflow"]
        if (name, target) in edges or name not in types or types[name] == "output":
            continue
        if _problem((name, target), spec) is None:
            spec["workflow"] = (*edges, (name, target))


def is_lettered(draft: Draft) -> bool:
    """Whether records that an input cannot read are to be dead letters: an option that inputs have
    in common."""
    return (good(draft, "options") or {}).get("onBadRecord") == "deadLetter"


def aside(spec: Draft) -> Iterator[tuple[str, str]]:
    """(task, target) for each task whose dead letters or late segments go to another one."""
    for draft, _ in entries(spec, "catalog", "", "catalog"):
        for field in ("dead_letter", "late_to"):
            if (name := good(draft, "name")) and (target := good(draft, field)):
                yield name, target
    for draft, _ in entries(spec, "windows", "", "windows"):
        if (task := good(draft, "task")) and (target := good(draft, "late_to")):
            yield task, target


def check_dead_letters(spec: Draft, path: str, report: Report) -> None:
    """Dead letters go to a task that is there and comes after, never round in a circle."""
    for draft, where in entries(spec, "catalog", path, "catalog"):
        name, target = good(draft, "name"), good(draft, "dead_letter")
        if good(draft, "type") == "table" and is_lettered(draft):
            what = "is deadLetter, which is for inputs: a table would lack rows"
            report.add(at(at(where, "options"), "onBadRecord"), what, "leave it out")
        if "first_failures_max" in draft and "dead_letter" not in draft:
            what = "is for tasks with dead letters: without them the first failure kills the job"
            report.add(at(where, "firstFailuresMax"), what, "give the task a deadLetter")
        if name is None or target is None:
            continue
        problem = _problem((name, target), spec)
        if problem:
            report.add(at(where, "deadLetter"), f"{show(target)} {problem[0]}", problem[1])


def _problem(edge: tuple[str, str], spec: Draft) -> tuple[str, str] | None:
    """What is wrong with an edge for dead letters, and what to do."""
    task, target = edge
    known = known_tasks(spec)
    if known is not None and target not in known:
        return "is not in the catalog", nearest(target, sorted(known)) or "add it to the catalog"
    if _types(spec).get(target) == "input":
        return "is an input", "name an output, or a task before one"
    edges = good(spec, "workflow") or ()
    if target == task or (
        any(task in each for each in edges) and target in workflow.ancestors(edges, task)
    ):
        return f"is {task} itself or comes before it", "name an output, or a task before one"
    return None


def _types(spec: Draft) -> dict[str | None, str | None]:
    drafts = entries(spec, "catalog", "", "catalog")
    return {good(each, "name"): good(each, "type") for each, _ in drafts}
