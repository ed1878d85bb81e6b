"""Rules of tasks that keep state by key: functions with `state`, and processors."""

from __future__ import annotations

from onyx.model import names
from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, show
from onyx.model.rules.catalog import STAGES
from onyx.model.rules.looking import entries, good
from onyx.model.rules.windows import check_repeats
from onyx.model.state_types import ANY, NESTED, VALUES, parse_state_type
from onyx.model.workflow import ordered_parents

_OTHERWISE = {
    "spark_stage": "keep state in a task before or after the stage",
    "spark_sql": "keep state in a task before or after the stage",
    "processor": "a processor has state of its own: remove state",
    "sql": "give the SQL to a task before or after it",
    "join": "join in a task before it, or look the table up in the function, by tables",
    "batch_fn": "a function with state gets one segment at a time, with the state of its group: "
    "remove batchFn",
}


def check_state(draft: Draft, path: str, report: Report) -> None:
    """State is of groups, and of a function that gets single segments or columns."""
    if "state" not in draft:
        for field in ("state_ttl", "on_timer"):
            if field in draft:
                where = at(path, names.yaml_key(field))
                report.add(where, "is given, but the task has no state", "add state, or remove it")
        return
    if good(draft, "type") not in (None, "function"):
        return
    where = at(path, "state")
    if good(draft, "state") == {}:
        report.add(where, "is empty", "give a state a name and a type, as in {seen: value[int]}")
    if "group_by_key" not in draft and "group_by_fn" not in draft:
        hint = "add groupByKey or groupByFn, with fluxPolicy: continue"
        report.add(where, "is given, but the task is not grouped, and state is of groups", hint)
    for field, hint in _OTHERWISE.items():
        if good(draft, field):
            report.add(where, f"is not together with {names.yaml_key(field)}", hint)
    if good(draft, "batch_format") == "arrow":
        _check_columns(draft, path, report)


def _check_columns(draft: Draft, path: str, report: Report) -> None:
    """Over columns a state is a column, with a value for each group."""
    for name, text in (good(draft, "state") or {}).items():
        declared = parse_state_type(text)
        if declared.shape != "value" or not declared.value.is_columnar:
            typed = [each for each in (*VALUES, *NESTED) if each != ANY]
            hint = f"give value[{typed[1]}] ({', '.join(typed)}), or remove batchFormat"
            what = f"is {text}, which no column holds (batchFormat: arrow)"
            report.add(at(at(path, "state"), name), what, hint)
    if "on_timer" in draft:
        hint = "remove batchFormat; the task takes columns from others, and gets dicts"
        report.add(at(path, "onTimer"), "is not for a function over columns", hint)


def check_tasks(spec: Draft, path: str, report: Report) -> None:
    """A task has windows, or state of its own; one with state says how repeats are recognised."""
    windowed = {good(draft, "task") for draft, _ in entries(spec, "windows", path, "windows")}
    for draft, where in entries(spec, "catalog", path, "catalog"):
        joins = good(draft, "type") == "join"
        if good(draft, "state") is None and not joins:
            continue
        name = good(draft, "name")
        if name in windowed:
            what = "is a join" if joins else "is given"
            hint = "give the windows to a task after it"
            where = at(where, "type" if joins else "state")
            report.add(where, f"{what}, but {show(name)} has windows as well", hint)
        elif good(spec, "guarantee") in (None, "at-least-once"):
            what = "a join" if joins else "a task with state"
            check_repeats(draft, where, what, report)


_NOT_TOGETHER = {
    "fn": "call the function in the processor",
    "sql": "give the SQL to a task before or after it",
    "batch_fn": "a processor has an inbox: remove batchFn",
    "join": "join in a task before it, or look the table up in the processor, by tables",
    "uniqueness_key": "keep what was seen in the processor, or use guarantee: exactly-once",
    "deduplicate": "remove it: a processor looks for no repeated segments itself",
    **dict.fromkeys(STAGES, "give the stage to a task before or after it"),
}


def check_processor(draft: Draft, path: str, report: Report) -> None:
    """A processor is all that its task does."""
    if good(draft, "processor") is None:
        return
    for field, hint in _NOT_TOGETHER.items():
        if field in draft:
            where = at(path, names.yaml_key(field))
            report.add(where, "is given together with processor", hint)


def check_processors(spec: Draft, path: str, report: Report) -> None:
    """A task has windows or a processor; and who has several parents must be told whose segments
    these are, also when the job is allocated anew."""
    windowed = {good(draft, "task") for draft, _ in entries(spec, "windows", path, "windows")}
    for draft, where in entries(spec, "catalog", path, "catalog"):
        if good(draft, "processor") is None:
            continue
        name = good(draft, "name")
        where = at(where, "processor")
        if name in windowed:
            hint = "give the windows to a task before or after it"
            report.add(where, f"is given, but {show(name)} has windows as well", hint)
        several = len(ordered_parents(good(spec, "workflow") or (), name or "")) > 1
        if several and good(spec, "guarantee") == "at-most-once":
            what = "has several tasks upstream, which is not for guarantee: at-most-once"
            report.add(where, what, "choose at-least-once or exactly-once")
