"""Rules of the workflow, a graph without cycles from inputs to outputs; and of lifecycles, which
name its tasks."""

from __future__ import annotations

from collections.abc import Iterator

from onyx.model import workflow
from onyx.model.job import DEPTH_MAX
from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, nearest, show
from onyx.model.rules.looking import entries, good, known_tasks


def _edges(spec: Draft, path: str) -> Iterator[tuple[tuple[str, str], str]]:
    for index, edge in enumerate(good(spec, "workflow") or ()):
        yield edge, at(at(path, "workflow"), index)


def check_graph(spec: Draft, path: str, report: Report) -> None:
    """Edges join known tasks, once each, without a cycle and not too deep."""
    known = known_tasks(spec)
    tables = {
        good(draft, "name")
        for draft, _ in entries(spec, "catalog", path, "catalog")
        if good(draft, "type") == "table"
    }
    seen: dict[tuple[str, str], str] = {}
    for edge, where in _edges(spec, path):
        for end, task in enumerate(edge):
            if task in tables:
                hint = "remove the edge: tasks name a table in `join` or `tables`"
                report.add(
                    at(where, end), f"{show(task)} is a table, which no segment passes", hint
                )
            elif known is not None and task not in known:
                hint = nearest(task, sorted(known)) or "add it to the catalog"
                report.add(at(where, end), f"{show(task)} is not in the catalog", hint)
        if edge in seen:
            report.add(where, f"is the same edge as {seen[edge]}", "remove one")
        seen.setdefault(edge, where)
    _check_shape(list(seen), path, report)


def _check_shape(edges: list[tuple[str, str]], path: str, report: Report) -> None:
    cycle = workflow.find_cycle(edges)
    if cycle:
        report.add(
            at(path, "workflow"),
            f"has a cycle: {' -> '.join(cycle)}",
            "remove one of these edges",
        )
    elif workflow.depth(edges) > DEPTH_MAX:
        report.add(at(path, "workflow"), f"has more than {DEPTH_MAX} edges in a row")


def check_ends(spec: Draft, path: str, report: Report) -> None:
    """Inputs only begin, outputs only end, functions do neither, and no task is left over.

    A reduce task may be in the middle or, for what its triggers sync, at the end. So may a function
    with state and a processor: what is asked for is what they keep.
    """
    if good(spec, "workflow") is None:
        return
    edges = [edge for edge, _ in _edges(spec, path)]
    below, above = workflow.children(edges), workflow.parents(edges)
    for draft, where in entries(spec, "catalog", path, "catalog"):
        name, kind = good(draft, "name"), good(draft, "type")
        if name is None or kind == "table":
            continue
        if name not in below:
            report.add(
                at(where, "name"),
                f"{show(name)} is in no edge of the workflow",
                "add an edge, or remove the task",
            )
        else:
            keeps = any(field in draft for field in ("state", "processor"))
            where = at(path, "workflow")
            _check_end(name, kind, above[name], below[name], keeps, where, report)


def _check_end(
    name: str,
    kind: str | None,
    above: tuple[str, ...],
    below: tuple[str, ...],
    keeps: bool,
    path: str,
    report: Report,
) -> None:
    if kind == "input" and above:
        report.add(path, f"has an edge from {above[0]} into the input {name}")
    if kind == "output" and below:
        report.add(path, f"has an edge from the output {name} to {below[0]}")
    what = "reduce task" if kind == "reduce" else kind
    if kind in ("function", "reduce") and not above:
        report.add(path, f"has no edge into the {what} {name}", "it would get no segments")
    if kind in ("function", "join") and not below and not keeps:
        report.add(
            path,
            f"has no edge from the {what} {name}",
            "end in an output, or in a function with state or a processor; plugin function calls a "
            "function as an output",
        )


def check_exempt_tasks(spec: Draft, path: str, report: Report) -> None:
    """Tasks without bookkeeping exist."""
    known = known_tasks(spec)
    for index, task in enumerate(good(spec, "acker_exempt_tasks") or ()):
        if known is not None and task not in known:
            where = at(at(path, "ackerExemptTasks"), index)
            report.add(where, f"{show(task)} is not in the catalog", nearest(task, sorted(known)))


def check_tasks(spec: Draft, path: str, report: Report) -> None:
    """Lifecycles are about tasks of the catalog."""
    known = known_tasks(spec)
    for draft, where in entries(spec, "lifecycles", path, "lifecycles"):
        task = good(draft, "task")
        if task is not None and task != "all" and known is not None and task not in known:
            hint = nearest(task, sorted(known))
            report.add(at(where, "task"), f"{show(task)} is not in the catalog", hint)
