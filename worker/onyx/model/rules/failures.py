"""Rules of dead letters. Naming the task that gets them makes the edge to it: a job in which six
tasks share one would have to say so six times more."""

from __future__ import annotations

from onyx.model import workflow
from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, nearest, show
from onyx.model.rules.looking import entries, good, known_tasks


def add_edges(spec: Draft) -> None:
    """Complete the workflow of a draft. What `check_dead_letters` refuses is left out, so that it
    is reported once."""
    if good(spec, "workflow") is None:
        return
    for draft in good(spec, "catalog") or ():
        name, target = (good(draft, "name"), good(draft, "dead_letter")) if draft else (None, None)
        edges = spec["workflow"]
        if name is None or target is None or (name, target) in edges:
            continue
        if good(draft, "type") == "output":
            continue
        if _problem((name, target), spec) is None:
            spec["workflow"] = (*edges, (name, target))


def check_dead_letters(spec: Draft, path: str, report: Report) -> None:
    """Dead letters go to a task that is there and comes after, never round in a circle."""
    for draft, where in entries(spec, "catalog", path, "catalog"):
        name, target = good(draft, "name"), good(draft, "dead_letter")
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
    types = {good(each, "name"): good(each, "type") for each in good(spec, "catalog") or () if each}
    if types.get(target) == "input":
        return "is an input", "name an output, or a task before one"
    edges = good(spec, "workflow") or ()
    if target == task or (
        any(task in each for each in edges) and target in workflow.ancestors(edges, task)
    ):
        return f"is {task} itself or comes before it", "name an output, or a task before one"
    return None
