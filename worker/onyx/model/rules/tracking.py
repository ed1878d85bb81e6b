"""Rules about segments that are not accounted for, in a job that accounts for others.

Where every segment has to be known by its id, some without are refused, with the key that lets them
in: what an exactly-once window or output has applied, and what waits in files of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

from onyx.model import workflow
from onyx.model.keys.section import Draft
from onyx.model.plugins import built_in, reads_native, returns_failures
from onyx.model.report import Report, at
from onyx.model.rules.catalog import STAGES
from onyx.model.rules.looking import entries, good, known_tasks, tasks_with_state

_EXACTLY = (
    "in a job with guarantee exactly-once, whose windows and outputs know segments by the ids that "
    "these do not have"
)


def check_untracked(spec: Draft, path: str, report: Report) -> None:
    """What is not accounted for goes only where nobody has to know it again."""
    for where, what in _untracked(spec, path):
        if good(spec, "engine") == "spark":
            continue  # a notice says that it has no effect
        if good(spec, "guarantee") == "at-most-once":
            hint = "remove it, or give the job guarantee: at-least-once"
            report.add(where, "has no effect under guarantee at-most-once of the job", hint)
        elif good(spec, "guarantee") == "exactly-once":
            hint = "remove it, or give the job guarantee: at-least-once"
            report.add(where, f"is {what} {_EXACTLY}", hint)
        elif (spark := _by_spark(spec, path)) is not None:
            hint = "do that in a job of its own"
            report.add(where, f"is {what}, but {spark} needs every segment to be known", hint)


def check_guarantees(spec: Draft, path: str, report: Report) -> None:
    """An input has the guarantee of its job or a weaker one, and no keys that need a stronger."""
    job = good(spec, "guarantee")
    for draft, where in entries(spec, "catalog", path, "catalog"):
        own = good(draft, "guarantee")
        if own == "at-least-once" and job == "at-most-once":
            what = (
                "is at-least-once in a job with guarantee at-most-once, which accounts for nothing"
            )
            hint = "give the job guarantee: at-least-once, and its other inputs at-most-once"
            report.add(at(where, "guarantee"), what, hint)
        elif own == "at-least-once" and job == "exactly-once":
            what = (
                "is at-least-once in a job with guarantee exactly-once, which all its inputs have"
            )
            report.add(at(where, "guarantee"), what, "remove it")


def check_native(spec: Draft, path: str, report: Report) -> None:
    """What a queue gives again has other positions, and so other ids. And without trees nobody
    knows when to acknowledge."""
    job = good(spec, "guarantee")
    for draft, where in entries(spec, "catalog", path, "catalog"):
        options = good(draft, "options") or {}
        if not reads_native(good(draft, "type"), good(draft, "plugin"), options):
            continue
        what = ""
        if job == "exactly-once":
            what = (
                "is native in a job with guarantee exactly-once, whose windows and outputs could "
                "not tell what the queue gives again from what is new"
            )
        elif "at-most-once" in (job, good(draft, "guarantee")):
            what = (
                "is native under guarantee at-most-once, where nobody knows what is processed and "
                "may be acknowledged"
            )
        if what:
            hint = "take mode: journal, or guarantee: at-least-once"
            report.add(at(at(where, "options"), "mode"), what, hint)


def check_failures(spec: Draft, path: str, report: Report) -> None:
    """A failure goes back to where somebody takes it, and comes again behind others."""
    for draft, where in entries(spec, "catalog", path, "catalog"):
        kind, plugin = good(draft, "type"), good(draft, "plugin")
        options, row = good(draft, "options") or {}, built_in(kind, plugin)
        key = at(at(where, "options"), "onFailure")
        if row is None or row.type != "input" or "onFailure" not in options:
            continue
        if not (row.takes_back or row.takes_requests):
            what = f"is of queues, and nobody takes back what {row.name} has given"
            hint = "remove it, and give tasks a deadLetter or a flow condition for exceptions"
            report.add(key, what, hint)
        elif returns_failures(kind, plugin, options) and good(draft, "retry_mode") == "all-after":
            what = "is source with retryMode all-after, and what a source gives again comes behind"
            report.add(key, what, "take retryMode: individual or none, or onFailure: kill")


def check_retry_modes(spec: Draft, path: str, report: Report) -> None:
    """Exactly-once reads again, and knows what it has seen."""
    if good(spec, "guarantee") != "exactly-once":
        return
    for draft, where in entries(spec, "catalog", path, "catalog"):
        where, mode = at(where, "retryMode"), good(draft, "retry_mode")
        if mode == "none":
            what = (
                "is none in a job with guarantee exactly-once, in which no segment may be given up"
            )
            report.add(where, what, "remove it, or give the job guarantee: at-least-once")
        elif mode == "all-after":
            what = (
                "is all-after in a job with guarantee exactly-once, whose windows and outputs take "
                "nothing twice, so that what failed would come behind what had come after it"
            )
            report.add(where, what, "remove it, or give the job guarantee: at-least-once")


def check_ackers(spec: Draft, path: str, report: Report) -> None:
    """How many ackers there are is said once."""
    if good(spec, "ackers") is not None and "acker_percentage" in spec:
        what = "is given together with ackerPercentage"
        report.add(at(path, "ackers"), what, "keep one of them")


def check_exemptions(spec: Draft, path: str, report: Report) -> None:
    """Some task is left whose peers may be ackers: without any, no tree would ever be complete."""
    known = known_tasks(spec)
    if good(spec, "engine") == "spark" or good(spec, "guarantee") == "at-most-once" or not known:
        return
    exempt = {key: tasks & known for key, tasks in _exempt(spec, path).items() if tasks & known}
    if exempt and set().union(*exempt.values()) == known:
        key = next(iter(exempt))
        others = list(exempt)[1:]
        together = f" together with {' and '.join(others)}" if others else ""
        report.add(
            at(path, key),
            f"exempts{together} all tasks of the job, so that no peer would be an acker",
            "leave the peers of one task to be ackers",
        )


def _exempt(spec: Draft, path: str) -> dict[str, set[str]]:
    """The tasks that each key of the job exempts, by the name of the key."""
    tasks = [
        (good(draft, "name") or "", good(draft, "type"), _is_stage(draft))
        for draft, _ in entries(spec, "catalog", path, "catalog")
    ]
    inputs, outputs = (
        {name for name, kind, stage in tasks if stage or kind == wanted}
        for wanted in ("input", "output")
    )
    return {
        "ackerExemptTasks": set(good(spec, "acker_exempt_tasks") or ()),
        "ackerExemptInputTasks": inputs if good(spec, "acker_exempt_input_tasks") else set(),
        "ackerExemptOutputTasks": outputs if good(spec, "acker_exempt_output_tasks") else set(),
    }


def check_conditions(spec: Draft, path: str, report: Report) -> None:
    """What is sent unanchored is sent to somebody, and is no exception."""
    for draft, where in entries(spec, "flow_conditions", path, "flowConditions"):
        if good(draft, "anchored") is not False:
            continue
        where = at(where, "anchored")
        if good(draft, "thrown_exception"):
            what = "is false with thrownException, but what has failed is accounted for"
            report.add(where, what, "remove it")
        elif good(draft, "to") == "none":
            report.add(where, "has no effect with to: none, which sends nothing", "remove it")


def check_retries(spec: Draft, path: str, report: Report) -> None:
    """A condition asks for retries only where an input may read the segment again."""
    below = workflow.children(edge for edge in good(spec, "workflow") or ())
    reached = _reached_tracked(spec, path)
    if reached is None:
        return
    for draft, where in entries(spec, "flow_conditions", path, "flowConditions"):
        if good(draft, "action") != "retry":
            continue
        sources = good(draft, "from_task") or ()
        names = (sources,) if isinstance(sources, str) else sources
        lost = [name for name in names if name in below and name not in reached]
        if lost:
            what = f"is retry, but nobody reads a segment of {lost[0]} again: none is accounted for"
            hint = "try again in the task's function, or give an input above it at-least-once"
            report.add(at(where, "action"), what, hint)


def _untracked(spec: Draft, path: str) -> Iterator[tuple[str, str]]:
    """Where a job says that something is not accounted for, each with what it says."""
    for draft, where in entries(spec, "catalog", path, "catalog"):
        if good(draft, "guarantee") == "at-most-once" and good(spec, "guarantee") != "at-most-once":
            yield at(where, "guarantee"), "at-most-once"
        if good(draft, "anchored") is False:
            yield at(where, "anchored"), "false"
    for draft, where in entries(spec, "flow_conditions", path, "flowConditions"):
        if good(draft, "anchored") is False:
            yield at(where, "anchored"), "false"


def _by_spark(spec: Draft, path: str) -> str | None:
    """A part of the job that Spark runs."""
    for draft, _ in entries(spec, "catalog", path, "catalog"):
        if _is_stage(draft):
            return f"the Spark stage {good(draft, 'name')}"
    for draft, _ in entries(spec, "windows", path, "windows"):
        if good(draft, "engine") == "spark":
            return f"window {good(draft, 'id')} with engine spark"
    return None


def _is_stage(draft: Draft) -> bool:
    return any(good(draft, field) is not None for field in STAGES)


def _reached_tracked(spec: Draft, path: str) -> set[str] | None:
    """Tasks that some segment reaches that is accounted for; None: a part of the job is wrong."""
    edges = good(spec, "workflow")
    if edges is None or workflow.find_cycle(edges) or good(spec, "guarantee") == "at-most-once":
        return None
    drafts = {good(draft, "name"): draft for draft, _ in entries(spec, "catalog", path, "catalog")}
    stateful = tasks_with_state(spec, path)
    below, reached = workflow.children(edges), set[str]()
    for task in workflow.topological_order(edges):
        draft = drafts.get(task)
        if draft is None:
            return None
        reads = good(draft, "type") == "input" and good(draft, "guarantee") != "at-most-once"
        if reads or task in stateful:
            reached.add(task)
        if task in reached and good(draft, "anchored") is not False:
            reached.update(below[task])
    return reached
