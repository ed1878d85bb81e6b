"""Rules of windows and triggers."""

from __future__ import annotations

from onyx.model import names
from onyx.model.keys.section import Draft
from onyx.model.kinds import AGGREGATIONS, EMIT_ROWS, TRIGGERS, WINDOWS, aggregation_name
from onyx.model.report import Report, at, nearest, show
from onyx.model.rules.looking import entries, good, known_tasks, whole
from onyx.model.workflow import children

EXTENTS_MAX = 10_000
"""Extents that one segment may belong to; each costs a state change."""


def check_window(draft: Draft, path: str, report: Report) -> None:
    """What the keys of one window ask of each other."""
    _check_extents(draft, path, report)
    _check_storage(draft, path, report)
    _check_aggregation(draft, path, report)
    _check_lateness(draft, path, report)


def _check_extents(draft: Draft, path: str, report: Report) -> None:
    width, slide = good(draft, "range"), good(draft, "slide")
    if width is None or slide is None:
        return
    if _is_time(width) != _is_time(slide):
        report.add(
            at(path, "slide"), f"is in {slide[1]}, but range is in {width[1]}", "use one kind"
        )
    elif _size(slide) > _size(width):
        report.add(at(path, "slide"), "is larger than range", "segments between would be lost")
    elif _size(width) > EXTENTS_MAX * _size(slide):
        report.add(
            at(path, "slide"),
            f"is so small that a segment is in more than {EXTENTS_MAX} extents",
            "make slide larger, or range smaller",
        )


def _is_time(amount: tuple[int, str]) -> bool:
    return amount[1] in names.TIME_UNITS


def _size(amount: tuple[int, str]) -> int:
    return amount[0] * names.UNIT_MS.get(amount[1].removesuffix("s"), 1)


def _check_lateness(draft: Draft, path: str, report: Report) -> None:
    lateness = good(draft, "allowed_lateness")
    key = "timeoutGap" if good(draft, "range") is None else "range"
    width = good(draft, "range") or good(draft, "timeout_gap")
    if lateness is not None and width is not None and _is_time(lateness) != _is_time(width):
        where = at(path, "allowedLateness")
        report.add(where, f"is in {lateness[1]}, but {key} is in {width[1]}", "use one kind")
    if "late_to" in draft and "allowed_lateness" not in draft:
        report.add(
            at(path, "lateTo"),
            "is given without allowedLateness, so that nothing is ever late",
            "add it: [0, milliseconds] allows none",
        )


def _check_storage(draft: Draft, path: str, report: Report) -> None:
    kept, kind = good(draft, "storage_strategy"), good(draft, "type")
    if kept is None:
        return
    where = at(path, "storageStrategy")
    if "incremental" in kept and "extents" in kept:
        report.add(where, "has both incremental and extents", "keep one of them")
    if "ordered-log" in kept and kind is not None and not WINDOWS[kind].ordered:
        report.add(where, f"has ordered-log, which a {kind} window cannot keep")
    elif "ordered-log" in kept and "incremental" not in kept and "window_key" not in draft:
        hint = "add it: an ordered-log is in the order of its values"
        report.add(at(path, "windowKey"), "is missing", hint)


def _check_aggregation(draft: Draft, path: str, report: Report) -> None:
    aggregation = good(draft, "aggregation")
    if aggregation is None:
        return
    name = aggregation_name(aggregation)
    kind = AGGREGATIONS.get(name)
    if kind is not None:
        keys = 0 if isinstance(aggregation, str) else len(aggregation) - 1
        where = at(path, "aggregation")
        if kind.keyed and keys != 1:
            report.add(where, f"{name} takes one key, not {keys}", f"write [{name}, key]")
        elif keys and not kind.keyed:
            report.add(where, f"{name} takes no key", f"write {name}")
    if good(draft, "batch_format") == "arrow":
        _check_batch_format(draft, name, at(path, "batchFormat"), report)


def _check_batch_format(draft: Draft, aggregation: str, path: str, report: Report) -> None:
    if aggregation in AGGREGATIONS:
        what = f"is arrow, but {aggregation} takes segments of both formats"
        report.add(path, what, "remove it")
    elif "ordered-log" in (good(draft, "storage_strategy") or ()):
        what = "is arrow, but an ordered-log keeps single segments"
        report.add(path, what, "remove one of them")


def check_trigger(draft: Draft, path: str, report: Report) -> None:
    """What the keys of one trigger ask of each other."""
    if good(draft, "batch_format") == "arrow" and not _calls_functions(draft):
        where = at(path, "batchFormat")
        report.add(where, "is arrow, but the trigger calls no function of yours", "remove it")
    evictor = good(draft, "post_evictor")
    if evictor is not None and len(set(evictor)) > 1:
        report.add(at(path, "postEvictor"), "has both all and none", "keep one of them")


def _calls_functions(draft: Draft) -> bool:
    return "sync" in draft or ("emit" in draft and good(draft, "emit") != EMIT_ROWS)


def check_ids(spec: Draft, path: str, report: Report) -> None:
    """No two windows, and no two triggers of one window, have the same id."""
    seen: dict[tuple[str | None, str], str] = {}
    for draft, where in entries(spec, "windows", path, "windows"):
        _check_id(seen, (None, good(draft, "id")), where, report)
    for draft, where in entries(spec, "triggers", path, "triggers"):
        _check_id(seen, (good(draft, "window_id") or "", good(draft, "id")), where, report)


def _check_id(
    seen: dict[tuple[str | None, str], str],
    key: tuple[str | None, str | None],
    path: str,
    report: Report,
) -> None:
    owner, name = key
    if name is None:
        return
    first = seen.setdefault((owner, name), path)
    if first != path:
        report.add(at(path, "id"), f"{show(name)} is also the id of {first}")


def check_tasks(spec: Draft, path: str, report: Report) -> None:
    """Windows are on tasks after an input, which say how repeated segments are recognised."""
    by_name = {
        good(draft, "name"): (draft, where)
        for draft, where in entries(spec, "catalog", path, "catalog")
    }
    known = known_tasks(spec)
    checked: set[str] = set()
    for draft, where in entries(spec, "windows", path, "windows"):
        task = good(draft, "task")
        if task is None or known is None:
            continue
        if task not in by_name:
            hint = nearest(task, sorted(known))
            report.add(at(where, "task"), f"{show(task)} is not in the catalog", hint)
            continue
        entry, entry_path = by_name[task]
        if good(entry, "type") == "input":
            report.add(at(where, "task"), f"{show(task)} is an input", "use a task after it")
        if task not in checked and good(spec, "guarantee") in (None, "at-least-once"):
            check_repeats(entry, entry_path, "a windowed task", report)
        checked.add(task)


def check_repeats(entry: Draft, path: str, what: str, report: Report) -> None:
    """Under at-least-once a task with state says how it recognises repeated segments."""
    keyed, looks = "uniqueness_key" in entry, entry.get("deduplicate", True)
    if looks is True and not keyed:
        report.add(
            at(path, "uniquenessKey"),
            f"is missing, but {what} must recognise repeated segments",
            "give it, or deduplicate: false, or the job's guarantee: exactly-once",
        )
    if looks is False and keyed:
        report.add(at(path, "deduplicate"), "is false together with uniquenessKey", "keep one")


def check_late_tasks(spec: Draft, path: str, report: Report) -> None:
    """Late segments go to a child of the task that holds the window."""
    edges = good(spec, "workflow")
    below = children(edges) if edges is not None else {}
    for draft, where in entries(spec, "windows", path, "windows"):
        task, target = good(draft, "task"), good(draft, "late_to")
        if target is None or task not in below or target in below[task]:
            continue
        hint = nearest(target, below[task]) or f"name an output, or a task after {task}"
        report.add(at(where, "lateTo"), f"{show(target)} is not a child of {task}", hint)


def check_delays(spec: Draft, path: str, report: Report) -> None:
    """An extent is still there when a delayed trigger fires it."""
    allowed = {
        good(draft, "id"): good(draft, "allowed_lateness")
        for draft, _ in entries(spec, "windows", path, "windows")
    }
    for draft, where in entries(spec, "triggers", path, "triggers"):
        delay, lateness = good(draft, "delay"), allowed.get(good(draft, "window_id"))
        if delay is not None and lateness is not None and _size(delay) > _size(lateness):
            report.add(
                at(where, "delay"),
                "is longer than allowedLateness of its window: extents would be dropped unfired",
                "make allowedLateness as long",
            )


def check_last_firings(spec: Draft, path: str, report: Report) -> None:
    """A trigger that fires at the end alone does so."""
    types = {
        good(draft, "id"): good(draft, "type")
        for draft, _ in entries(spec, "windows", path, "windows")
    }
    for draft, where in entries(spec, "triggers", path, "triggers"):
        kind = TRIGGERS.get(good(draft, "type") or "")
        window = WINDOWS.get(types.get(good(draft, "window_id")) or "")
        never = good(draft, "fire_at_end") == "never"
        if not never or kind is None or window is None:
            continue
        if window.single and kind.looks_at == "watermarks":
            report.add(
                at(where, "fireAtEnd"),
                f"is never, but a {kind.name} trigger fires for a {window.name} window at the end "
                "alone: it would never fire",
                "remove it, or take another type of trigger",
            )


def check_emissions(spec: Draft, path: str, report: Report) -> None:
    """Only what triggers emit leaves a reduce task; what they emit has somewhere to go."""
    edges = good(spec, "workflow")
    if edges is None or not (_readable(spec, "windows") and _readable(spec, "triggers")):
        return
    if any(
        good(draft, "window_id") is None for draft, _ in entries(spec, "triggers", path, "triggers")
    ):
        return
    below = children(edges)
    emitting = _emitting_triggers(spec, path)
    apart = {
        (good(draft, "task"), good(draft, "late_to"))
        for draft, _ in entries(spec, "windows", path, "windows")
    }
    for draft, where in entries(spec, "catalog", path, "catalog"):
        name = good(draft, "name")
        apart.add((name, good(draft, "dead_letter")))
        if good(draft, "type") not in ("reduce", "output") or name not in below:
            continue
        fed = [child for child in below[name] if (name, child) not in apart]
        if fed and name not in emitting and good(draft, "type") == "reduce":
            report.add(
                at(where, "type"),
                f"is reduce, but none of its triggers has emit: {fed[0]} would get nothing",
                "give a trigger of its windows emit, or remove the edge",
            )
        if name in emitting and not fed:
            report.add(
                at(emitting[name], "emit"),
                f"is given, but {show(name)} has no children to send to",
                "add an edge, or use sync",
            )


def _emitting_triggers(spec: Draft, path: str) -> dict[str, str]:
    """Paths of triggers with `emit` by the task of their window; one a task."""
    tasks = {
        good(draft, "id"): good(draft, "task")
        for draft, _ in entries(spec, "windows", path, "windows")
    }
    return {
        tasks[good(draft, "window_id")]: where
        for draft, where in entries(spec, "triggers", path, "triggers")
        if "emit" in draft and good(draft, "window_id") in tasks
    }


def _readable(spec: Draft, field: str) -> bool:
    return field not in spec or whole(spec, field)


def check_trigger_windows(spec: Draft, path: str, report: Report) -> None:
    """Triggers belong to windows of the job."""
    known = sorted(
        name
        for draft, _ in entries(spec, "windows", path, "windows")
        if (name := good(draft, "id")) is not None
    )
    unsure = "windows" in spec and not whole(spec, "windows")
    for draft, where in entries(spec, "triggers", path, "triggers"):
        name = good(draft, "window_id")
        if name is not None and name not in known and not unsure:
            hint = nearest(name, known) or "add it to windows"
            report.add(at(where, "windowId"), f"{show(name)} is not the id of a window", hint)
