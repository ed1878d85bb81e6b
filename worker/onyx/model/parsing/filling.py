"""What a manifest leaves out because there is one sensible answer, filled in before the rules look
at it: so peers, Spark, the operator, the builder and an upgrade see the full job, the log holds it,
and the short and the long form of a job are equal.

Where there are two answers nothing is filled in: the problem says what to write. Defaults of single
keys, which depend on nothing else, are those of the fields of `model/job`; here are those that
follow from the rest of the job. Both are in the tables of docs/reference (`Key.filled`).

Rejected: filling in where a key is read (each engine would have its own idea of it), and by the API
server (it knows constants only, and a job file would mean another thing there).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from onyx.model import workflow
from onyx.model.job import CatalogEntry
from onyx.model.job.windows import BOUNDED
from onyx.model.keys.fields import section_of
from onyx.model.keys.section import Draft
from onyx.model.kinds import EMIT_ROWS
from onyx.model.names import TIME_UNITS, yaml_key
from onyx.model.plugins import keeps_parts
from onyx.model.report import INVALID, Report, at, listed
from onyx.model.rules.failures import add_edges, aside, is_lettered
from onyx.model.rules.looking import entries, good, is_grouped, keeps_state, whole

_CATALOG = section_of(CatalogEntry)
_WORK = ("fn", "processor", "sql", "spark_stage", "spark_sql", "join")
"""Keys of which a function has one."""
_LETTERS = "dead-letters"
"""The task that is added for dead letters, and the end of the name of its folder."""
_TYPES = "give input, function, output, reduce, table or join"


def fill(spec: Draft, path: str, report: Report) -> None:
    """Fill in what the spec of a job leaves out; reports what it needs and cannot know."""
    _fill_types_by_keys(spec, path, report)
    if "workflow" not in spec and whole(spec, "catalog"):
        _fill_workflow(spec, path, report)
    _fill_types_by_edges(spec, path, report)
    _fill_dead_letters(spec, path, report)
    add_edges(spec)
    _fill_windows(spec, path, report)
    _fill_triggers(spec, path, report)
    _fill_tasks(spec, path)


# --- types and edges


def _fill_types_by_keys(spec: Draft, path: str, report: Report) -> None:
    """The types of tasks whose own keys, or windows, say them."""
    windowed = {good(draft, "task") for draft, _ in entries(spec, "windows", path, "windows")}
    tables = set(_looked_up(spec, path))
    for draft, where in entries(spec, "catalog", path, "catalog"):
        if "type" in draft:
            continue
        works = [field for field in _WORK if field in draft]
        has_windows = good(draft, "name") in windowed
        if "plugin" in draft:
            if "key" in draft or good(draft, "name") in tables:
                _set_type(draft, "table", where, report)
        elif "left" in draft or "right" in draft:
            _set_type(draft, "join", where, report)
        elif works and has_windows:
            what = f"is missing, and the task has {yaml_key(works[0])} and windows"
            hint = "give function if what it makes goes on too, reduce if only what triggers emit"
            _refuse_type(draft, where, what, hint, report)
        elif works or has_windows:
            _set_type(draft, "function" if works else "reduce", where, report)
        else:
            what = "is missing, and the task has no fn, no plugin and no windows that say it"
            _refuse_type(draft, where, what, _TYPES, report)


def _looked_up(spec: Draft, path: str) -> Iterator[str]:
    """The tables that tasks name."""
    for draft, _ in entries(spec, "catalog", path, "catalog"):
        yield from good(draft, "tables") or ()
        if (table := good(good(draft, "join") or {}, "table")) is not None:
            yield table


def _fill_workflow(spec: Draft, path: str, report: Report) -> None:
    """The edges of a job whose catalog is a straight line: an input, functions, and an output."""
    beside = {target for _, target in aside(spec)}
    line = [
        (good(draft, "name"), draft)
        for draft, _ in entries(spec, "catalog", path, "catalog")
        if draft.get("type") != "table" and good(draft, "name") not in beside
    ]
    names = [name for name, _ in line if name is not None]
    if len(names) < len(line):
        spec["workflow"] = INVALID
        return
    bend = _bend([(name, draft) for name, draft in line if name is not None])
    if not bend:
        spec["workflow"] = tuple(pairwise(names))
        return
    report.add(
        at(path, "workflow"),
        f"is missing, and the catalog is no straight line from input to output: {bend}",
        "give the edges: [[from, to], ...]",
    )
    spec["workflow"] = INVALID


def _bend(line: list[tuple[str, Draft]]) -> str:
    """Why tasks are no straight line; nothing if they are one. What the type of a plugin is follows
    from its place."""
    if len(line) < 2:
        return f"it has {len(line)} task"
    (first, begin), (last, end) = line[0], line[-1]
    if "type" in begin and good(begin, "type") not in ("input", None):
        return f"the first, {first}, is no input"
    last_kind = good(end, "type")
    may_end = last_kind in ("output", "reduce", None) or (
        last_kind == "function" and keeps_state(end)
    )
    if not may_end:
        return f"the last, {last}, is no output"
    for name, draft in line[1:-1]:
        kind = good(draft, "type")
        if "type" not in draft or kind in ("input", "output"):
            return f"{name}, in the middle, {f'is an {kind}' if kind else 'has a plugin'}"
        if kind == "join":
            return f"{name}, in the middle, is a join, which has two tasks before it"
    return ""


def _fill_types_by_edges(spec: Draft, path: str, report: Report) -> None:
    """The types of tasks with a plugin: nothing comes to an input, nothing leaves an output."""
    edges = good(spec, "workflow")
    below = {} if edges is None else workflow.children(edges)
    above = {} if edges is None else workflow.parents(edges)
    beside = {target for _, target in aside(spec)}
    for draft, where in entries(spec, "catalog", path, "catalog"):
        name = good(draft, "name")
        if "type" in draft or name is None:
            continue
        begins, ends = bool(below.get(name)), bool(above.get(name)) or name in beside
        if edges is None:
            draft["type"] = INVALID  # that there are none, or wrong ones, is said
        elif begins != ends:
            _set_type(draft, "input" if begins else "output", where, report)
        elif begins:
            what = f"is missing, and {name} has a plugin, and edges into it and from it"
            _refuse_type(draft, where, what, "give input or output, and remove edges", report)
        else:
            draft["type"] = INVALID  # a rule says that it is in no edge


def _fill_dead_letters(spec: Draft, path: str, report: Report) -> None:
    """The task that gets bad records of inputs which are to be dead letters: the one that gets
    others, or else an output, which is also added for whoever names it."""
    drafts = list(entries(spec, "catalog", path, "catalog"))
    targets = {str(target) for draft, _ in drafts if (target := good(draft, "dead_letter"))}
    for draft, where in drafts:
        if not is_lettered(draft) or good(draft, "type") != "input" or "dead_letter" in draft:
            continue
        draft["dead_letter"] = next(iter(targets or {_LETTERS}))
        if len(targets) > 1:
            draft["dead_letter"] = INVALID
            what = f"is missing, and the job has several: {listed(sorted(targets))}"
            report.add(at(where, "deadLetter"), what, "name one of them")
    named = [(draft, where) for draft, where in drafts if good(draft, "dead_letter") == _LETTERS]
    if not named or any(good(draft, "name") == _LETTERS for draft, _ in drafts):
        return
    folder = _folder_beside([draft for draft, _ in drafts])
    if folder is not None:
        its = {"name": _LETTERS, "type": "output", "plugin": "files", "options": {"path": folder}}
        spec["catalog"] = [*spec["catalog"], its | {"max_peers": 1}]
        return
    for draft, where in named:
        draft["dead_letter"] = INVALID
        verb = "is missing" if is_lettered(draft) else "is not in the catalog"
        what = f"{verb}, and the job writes no folder beside which dead letters could lie"
        add = f"{{name: {_LETTERS}, plugin: files, options: {{path: FOLDER}}}}"
        report.add(at(where, "deadLetter"), what, f"add {add} to the catalog")


def _folder_beside(drafts: list[Draft]) -> str | None:
    """A folder in the one that all folders lie in which a job writes, as letters are about its
    inputs and not about one output; beside the first if there is none. None: there is no place."""
    paths = [
        str((good(draft, "options") or {}).get("path", "")).rstrip("/")
        for draft in drafts
        if keeps_parts(str(good(draft, "type")), good(draft, "plugin"))
    ]
    if not paths or _has_nothing_beside(paths[0]):
        return None
    around = {path.rpartition("/")[0] for path in paths}
    inside = f"{paths[0].rpartition('/')[0]}/{_LETTERS}"
    shared = len(paths) > 1 == len(around) and not _has_nothing_beside(*around)
    return inside if shared and inside not in paths else f"{paths[0]}-{_LETTERS}"


def _has_nothing_beside(path: str) -> bool:
    """Whether it is a bucket, or no name of a folder. What lies in such a place is of many jobs."""
    whole, name = path.partition("://")[2] or path, path.rpartition("/")[2]
    return name in ("", ".", "..") or ("://" in path and "/" not in whole)


def _set_type(draft: Draft, kind: str, path: str, report: Report) -> None:
    draft["type"] = kind
    _CATALOG.check_by_type(draft, path, report)


def _refuse_type(draft: Draft, path: str, what: str, hint: str, report: Report) -> None:
    draft["type"] = INVALID
    report.add(at(path, "type"), what, hint)


# --- windows and triggers


def _fill_windows(spec: Draft, path: str, report: Report) -> None:
    """The ids of windows that are alone on their task, and the keys of their times."""
    tasks = [good(draft, "task") for draft, _ in entries(spec, "windows", path, "windows")]
    for draft, where in entries(spec, "windows", path, "windows"):
        task, kind = good(draft, "task"), good(draft, "type")
        if "id" not in draft:
            draft["id"] = task or INVALID
            if task is not None and tasks.count(task) > 1:
                draft["id"] = INVALID
                what = f"is missing, and {task} has several windows"
                report.add(at(where, "id"), what, "give each of them an id")
        if "window_key" not in draft and kind in BOUNDED:
            key, why = _time_key(spec, path, draft)
            draft["window_key"] = key or INVALID
            if key is None and why:
                hint = "give the key of a segment by whose value it is assigned"
                report.add(at(where, "windowKey"), f"is missing, and {why}", hint)


def _time_key(spec: Draft, path: str, window: Draft) -> tuple[str | None, str]:
    """The key in which all inputs before a window have their event time; or why there is none, or
    nothing if another problem says it."""
    length = good(window, "range") or good(window, "timeout_gap")
    edges, task = good(spec, "workflow"), good(window, "task")
    if length is not None and length[1] not in TIME_UNITS:
        return None, f"{length[1]} are no time, which watermarkKey of an input would hold"
    if edges is None or not any(task in edge for edge in edges) or length is None:
        return None, ""
    before = workflow.ancestors(edges, task)
    inputs = {
        good(draft, "name"): good(draft, "watermark_key")
        for draft, _ in entries(spec, "catalog", path, "catalog")
        if good(draft, "type") == "input" and good(draft, "name") in before
    }
    keys = sorted({key for key in inputs.values() if key is not None})
    without = sorted(str(name) for name, key in inputs.items() if key is None)
    if len(keys) > 1:
        return None, f"the inputs before {task} have several watermarkKeys: {', '.join(keys)}"
    if without or not keys:
        which = f"the input {without[0]}" if without else "no input"
        verb = "has no watermarkKey" if without else f"before {task} has a watermarkKey"
        return None, f"{which} {verb}"
    return keys[0], ""


def _fill_triggers(spec: Draft, path: str, report: Report) -> None:
    """The windows of triggers where there is one, and what is done when they fire."""
    windows = {
        good(draft, "id"): good(draft, "task")
        for draft, _ in entries(spec, "windows", path, "windows")
    }
    for draft, where in entries(spec, "triggers", path, "triggers"):
        if "window_id" not in draft:
            draft["window_id"] = INVALID
            if "windows" in spec and (not whole(spec, "windows") or None in windows):
                continue
            if len(windows) == 1:
                draft["window_id"] = next(iter(windows))
            else:
                have = "several windows" if windows else "no window"
                hint = f"give {listed(map(str, windows))}" if windows else "add it to windows"
                report.add(at(where, "windowId"), f"is missing, and the job has {have}", hint)
        if "refinement" not in draft and good(draft, "post_evictor") != ("all",):
            draft["refinement"] = "accumulating"
        if "sync" not in draft and "emit" not in draft:
            task = windows.get(good(draft, "window_id"))
            _fill_emit(draft, where, spec, task, report)


def _fill_emit(draft: Draft, path: str, spec: Draft, task: str | None, report: Report) -> None:
    edges = good(spec, "workflow")
    if edges is None or task is None:
        return
    apart = set(aside(spec))
    if any(parent == task and (parent, child) not in apart for parent, child in edges):
        draft["emit"] = EMIT_ROWS
    else:
        what = f"is missing, and {task} has no children to which the trigger could emit rows"
        report.add(at(path, "sync"), what, "give sync, or add an edge to the workflow")


# --- tasks


def _fill_tasks(spec: Draft, path: str) -> None:
    """What becomes of groups whose peer leaves, and of segments that come again."""
    windowed = {good(draft, "task") for draft, _ in entries(spec, "windows", path, "windows")}
    at_least_once = spec.get("guarantee", "at-least-once") == "at-least-once"
    for draft, _ in entries(spec, "catalog", path, "catalog"):
        if is_grouped(draft) and good(draft, "type") != "table":
            draft.setdefault("flux_policy", "continue")
        looks = good(draft, "name") in windowed or keeps_state(draft)
        if at_least_once and looks and not {"uniqueness_key", "processor"} & draft.keys():
            draft.setdefault("deduplicate", False)
