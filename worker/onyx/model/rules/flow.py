"""Rules of flow conditions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onyx.model import names, workflow
from onyx.model.keys.predicate import has_function, has_sql
from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, nearest, show
from onyx.model.rules.looking import entries, good


def check_entry(draft: Draft, path: str, report: Report) -> None:
    """What the keys of one condition ask of each other."""
    short, to = good(draft, "short_circuit"), good(draft, "to")
    if good(draft, "thrown_exception") and not short:
        report.add(at(path, "shortCircuit"), "must be true with thrownException")
    catches = good(draft, "thrown_exception") or "predicate_errors_to" in draft
    if "post_transform" in draft and not catches:
        report.add(
            at(path, "postTransform"),
            "is for exceptions, but the condition is not",
            "add thrownException: true or predicateErrorsTo, or remove it",
        )
    if good(draft, "action") == "retry" and not short:
        report.add(at(path, "shortCircuit"), "must be true with action: retry")
    if good(draft, "action") == "retry" and to not in (None, "none"):
        report.add(at(path, "to"), "must be none with action: retry", "a retried segment stops")
    if "max_retries" in draft and "action" not in draft:
        report.add(at(path, "maxRetries"), "is given, but nothing is retried", "add action: retry")
    sources = good(draft, "from_task")
    if isinstance(sources, tuple) and "all" in sources:
        report.add(at(path, "from"), "has all in a list", "write from: all")
    if to in ("all", "none") and not short:
        report.add(at(path, "shortCircuit"), f"must be true with to: {to}")
    _check_sql(draft, path, report)
    if good(draft, "batch_format") == "arrow":
        _check_batch_format(draft, at(path, "batchFormat"), report)
    _check_params(draft, path, report)


def _check_batch_format(draft: Draft, path: str, report: Report) -> None:
    if good(draft, "thrown_exception"):
        what = "is arrow, but the predicate of a condition with thrownException gets one exception"
        report.add(path, what, "remove it")
    predicate = good(draft, "predicate")
    if predicate is not None and not has_function(predicate):
        what = "is arrow, but the predicate names no function"
        report.add(path, what, "remove it: comparisons take segments and columns")


def _check_sql(draft: Draft, path: str, report: Report) -> None:
    """SQL is about columns, and so are the functions beside it."""
    predicate = good(draft, "predicate")
    if predicate is None or not has_sql(predicate):
        return
    if good(draft, "thrown_exception"):
        what = "has sql, and a condition with thrownException gets one exception"
        report.add(at(path, "predicate"), what, "take a comparison or a function")
    if has_function(predicate) and draft.get("batch_format") != "arrow":
        what = "is needed: sql is over columns, and so are the functions in one predicate with it"
        report.add(at(path, "batchFormat"), what, "add batchFormat: arrow")


def _check_params(draft: Draft, path: str, report: Report) -> None:
    options = draft.get("options", {})
    predicate = good(draft, "predicate")
    if not isinstance(options, dict) or predicate is None:
        return
    for param, where in _params(predicate, at(path, "predicate")):
        if param not in options:
            report.add(where, f"{show(param)} is not a key of options", "add it to options")


def _params(predicate: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(predicate, str) or predicate[0] in (*names.COMPARISONS, names.SQL):
        return
    composed = predicate[0] in names.COMBINATORS
    for index, part in enumerate(predicate[1:], 1):
        if composed:
            yield from _params(part, at(path, index))
        else:
            yield part, at(path, index)


def check_tasks(spec: Draft, path: str, report: Report) -> None:
    """Conditions are about tasks of the workflow, and send to their children."""
    edges = good(spec, "workflow")
    if edges is None:
        return
    below = workflow.children(edges)
    outputs: set[str] = set()
    for draft, _ in entries(spec, "catalog", path, "catalog"):
        name, back = good(draft, "name"), good(draft, "loop_to")
        if name is not None and good(draft, "type") == "output":
            outputs.add(name)
        if name in below and back is not None:
            below[name] = (*below[name], back)
    for draft, where in entries(spec, "flow_conditions", path, "flowConditions"):
        for task in _sources(draft):
            if task != "all" and task not in below:
                hint = nearest(task, below)
                report.add(at(where, "from"), f"{show(task)} is not in the workflow", hint)
                continue
            if task in outputs and not good(draft, "thrown_exception"):
                what = f"{show(task)} is an output, which sends segments nowhere"
                report.add(at(where, "from"), what, "put the condition on the task before it")
            allowed = tuple(below) if task == "all" else below[task]
            for key, field in (("to", "to"), ("predicateErrorsTo", "predicate_errors_to")):
                targets = good(draft, field)
                if isinstance(targets, tuple):
                    _check_targets(targets, allowed, task, at(where, key), report)


def _sources(draft: Draft) -> tuple[str, ...]:
    """The tasks that a condition is about; all where that could not be read."""
    sources = good(draft, "from_task") or "all"
    return (sources,) if isinstance(sources, str) else sources


def _check_targets(
    targets: tuple[str, ...],
    allowed: tuple[str, ...],
    task: str,
    path: str,
    report: Report,
) -> None:
    one = "in the workflow" if task == "all" else f"a child of {task}"
    for index, target in enumerate(targets):
        if target not in allowed:
            hint = nearest(target, allowed) or (f"children: {', '.join(allowed)}" * bool(allowed))
            report.add(at(path, index), f"{show(target)} is not {one}", hint[:200])


def check_order(spec: Draft, path: str, report: Report) -> None:
    """all first, none first or after all, short circuits before the rest; task by task."""
    by_task: dict[str, list[tuple[Draft, str]]] = {}
    for draft, where in entries(spec, "flow_conditions", path, "flowConditions"):
        for task in _sources(draft) if good(draft, "from_task") else ():
            by_task.setdefault(task, []).append((draft, where))
    for conditions in by_task.values():
        _check_order_of_one(conditions, report)


def _retries(draft: Draft) -> bool:
    """Where it sends nothing because of that, it may stand anywhere."""
    return bool(good(draft, "action") == "retry")


def _check_order_of_one(conditions: list[tuple[Draft, str]], report: Report) -> None:
    ordinary = ""
    for index, (draft, path) in enumerate(conditions):
        to = None if _retries(draft) else good(draft, "to")
        before = [good(each, "to") for each, _ in conditions[:index] if not _retries(each)]
        if to == "all" and before:
            report.add(at(path, "to"), "all must come first among the conditions of its task")
        if to == "none" and before not in ([], ["all"]):
            report.add(at(path, "to"), "none must come first, or directly after all")
        if not good(draft, "short_circuit"):
            ordinary = ordinary or path
        elif ordinary:
            report.add(
                at(path, "shortCircuit"),
                f"a condition with shortCircuit must come before {ordinary}, which has none",
                "move it up",
            )


def check_retries(spec: Draft, path: str, report: Report) -> None:
    """Somebody must be able to read a segment again."""
    if good(spec, "guarantee") != "at-most-once":
        return
    for draft, where in entries(spec, "flow_conditions", path, "flowConditions"):
        if good(draft, "action") == "retry":
            report.add(
                at(where, "action"),
                "is retry, but under guarantee at-most-once no input reads a segment again",
                "set guarantee: at-least-once, or try again in the task's function",
            )


def check_compared_keys(spec: Draft, path: str, report: Report) -> None:
    """A task without a function has the columns of its schema, and no others to compare."""
    columns = dict(_known_columns(spec))
    for draft, where in entries(spec, "flow_conditions", path, "flowConditions"):
        predicate = good(draft, "predicate")
        if predicate is None or good(draft, "thrown_exception"):
            continue
        for task in (each for each in _sources(draft) if each in columns):
            for key, compared in _compared(predicate, at(where, "predicate")):
                if key not in columns[task]:
                    hint = nearest(key, columns[task]) or "add it to the schema"
                    report.add(compared, f"{show(key)} is not in the schema of {task}", hint)


def _known_columns(spec: Draft) -> Iterator[tuple[str, tuple[str, ...]]]:
    for draft in good(spec, "catalog") or ():
        if draft is not None and "fn" not in draft:
            name, schema = good(draft, "name"), good(draft, "schema")
            if name is not None and schema:
                yield name, tuple(schema)


def _compared(predicate: Any, path: str) -> Iterator[tuple[str, str]]:
    """The keys of the comparisons, with their key paths."""
    if isinstance(predicate, str):
        return
    head, *rest = predicate
    if head in names.COMPARISONS:
        yield rest[0], at(path, 1)
    elif head in names.COMBINATORS:
        for index, part in enumerate(rest, 1):
            yield from _compared(part, at(path, index))
