"""Rules of loops: a task sends back, a limited number of times, what a flow condition says."""

from __future__ import annotations

from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, listed, nearest, show
from onyx.model.rules.catalog import STAGES
from onyx.model.rules.looking import entries, good, is_grouped, tasks_with_state
from onyx.model.workflow import ancestors, between

_LOST = "nobody would know when it has come to its end"
_UNHEARD = "tasks behind a loop wait for all that comes to where it begins"
_AROUND = "let the loop begin behind it, or end before it"
_SHUFFLED = f"run the job on peers, or {_AROUND}"


def check_entry(draft: Draft, path: str, report: Report) -> None:
    """A loop has an end."""
    if "laps_max" in draft and "loop_to" not in draft:
        report.add(at(path, "lapsMax"), "is given without loopTo", "add it, or remove this")
    if "loop_to" in draft and "laps_max" not in draft:
        what = "is missing, but a loop must have an end"
        report.add(at(path, "lapsMax"), what, "say how often a segment may go back")


def check_loops(spec: Draft, path: str, report: Report) -> None:
    """Loops lead back over functions whose segments are accounted for, each by itself."""
    tasks = {
        name: (draft, where)
        for draft, where in entries(spec, "catalog", path, "catalog")
        if (name := good(draft, "name")) is not None
    }
    edges = good(spec, "workflow")
    loops = [name for name, (draft, _) in tasks.items() if good(draft, "loop_to") is not None]
    if edges is None or not loops:
        return
    _check_accounts(spec, tasks, at(tasks[loops[0]][1], "loopTo"), report)
    stateful = tasks_with_state(spec, path)
    seen: dict[str, str] = {}
    for name in loops:
        draft, where = tasks[name]
        target, where = good(draft, "loop_to"), at(where, "loopTo")
        if target not in tasks:
            hint = nearest(target, sorted(tasks)) or "add it to the catalog"
            report.add(where, f"{show(target)} is not in the catalog", hint)
            continue
        known = any(name in edge for edge in edges)
        if not known or (target != name and target not in ancestors(edges, name)):
            what = f"{show(target)} is neither {name} itself nor before it"
            report.add(where, what, "what comes after a task is its child: add an edge")
            continue
        _check_condition(spec, path, name, target, where, report)
        loop = between(edges, target, name)
        for parent, task in edges:
            if task in loop and task != target and parent not in loop:
                what = f"makes a loop over {task}, where {parent} leads into the middle of it"
                hint = f"let the edge lead to {target}, or to a function before it: {_UNHEARD}"
                report.add(where, what, hint)
        for task in sorted(loop):
            if task in seen:
                what = f"makes a loop over {task}, which is in the loop of {seen[task]} already"
                report.add(where, what, "make one loop of both, or put a task between them")
                break
            seen[task] = name
            by_spark = good(spec, "engine") == "spark"
            if task in tasks:
                draft = tasks[task][0]
                keeps = task in stateful and "state" not in draft
                against, hint = _against(draft, keeps, by_spark)
                if "state" in draft and not against:
                    against, hint = _against_state(draft, good(spec, "guarantee"))
                if against:
                    report.add(where, f"makes a loop over {task}, {against}", hint)


def _against(draft: Draft, stateful: bool, by_spark: bool) -> tuple[str, str]:
    """Why a task cannot be in a loop, and what to do about it."""
    kind = good(draft, "type")
    if kind not in (None, "function"):
        return f"which is of type {kind}: only functions may be in one", _AROUND
    if stateful:
        what = "which has windows or a processor: what it sends begins anew, and would wait for "
        return f"{what}itself", _AROUND
    if any(good(draft, field) is not None for field in STAGES):
        return "which is a stage of Spark: it runs when all has come", _AROUND
    if by_spark and is_grouped(draft):
        what = "which is grouped: on Spark nothing goes back over a shuffle"
        return what, _SHUFFLED
    return "", ""


def _against_state(draft: Draft, guarantee: str | None) -> tuple[str, str]:
    """Why a function with state cannot be in a loop: it could be another one."""
    if "on_timer" in draft:
        what = "which has onTimer: what a timer makes is of no segment, so nobody waits for its end"
        return what, f"set timers in another task; or {_AROUND}"
    if "uniqueness_key" in draft and good(draft, "deduplicate") is not False:
        what = "which has state and uniquenessKey: in its second lap a segment would be a repeat"
        return what, f"give uniquenessKey to a task before the loop; or {_AROUND}"
    if good(draft, "batch_format") == "arrow":
        what = "which has state and batchFormat: arrow: what it has made of a row is not kept"
        return what, f"remove batchFormat; or {_AROUND}"
    if guarantee != "exactly-once":
        what = "which has state: what comes once more is known by its id only under exactly-once"
        return what, f"choose guarantee: exactly-once; or {_AROUND}"
    return "", ""


def _check_condition(
    spec: Draft, path: str, task: str, target: str, where: str, report: Report
) -> None:
    """Something goes back, and not everything does."""
    for draft, _ in entries(spec, "flow_conditions", path, "flowConditions"):
        sources, to = good(draft, "from_task"), good(draft, "to")
        if sources is None or to is None:
            return  # it could not be read, and may be the one
        from_here = task in ((sources,) if isinstance(sources, str) else sources)
        if (from_here or sources == "all") and isinstance(to, tuple) and target in to:
            return
    what = f"is {target}, but no flow condition of {task} sends anything there"
    report.add(where, what, f"add one with from: [{task}] and to: [{target}]")


def _check_accounts(
    spec: Draft, tasks: dict[str, tuple[Draft, str]], where: str, report: Report
) -> None:
    """A loop has come to its end when all trees of segments are complete."""
    if good(spec, "guarantee") == "at-most-once":
        what = f"is not for guarantee: at-most-once, where {_LOST}"
        report.add(where, what, "choose at-least-once or exactly-once")
        return
    loose = [
        name
        for name, (draft, _) in tasks.items()
        if good(draft, "guarantee") == "at-most-once" or good(draft, "anchored") is False
    ]
    for draft, _ in entries(spec, "flow_conditions", "", "flowConditions"):
        if good(draft, "anchored") is False:
            loose.append("a flow condition")
    if loose:
        what = f"is not for a job in which {listed(loose)} sends what is not accounted for: {_LOST}"
        report.add(where, what, "account for all of it, or do that in a job of its own")
