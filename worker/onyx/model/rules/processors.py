"""Rules of tasks that are processors."""

from __future__ import annotations

from onyx.model import names
from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, show
from onyx.model.rules.catalog import STAGES
from onyx.model.rules.looking import entries, good
from onyx.model.workflow import ordered_parents

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
