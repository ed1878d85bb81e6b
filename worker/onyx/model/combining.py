"""Which windows are combined before segments go to the peers or processes of their groups: whoever
has segments folds them, and states instead of segments travel, then are merged.

That gives the same as one fold behind the way when nothing looks at single segments or at their
order: numbers of built-in aggregations, extents that are known before segments come, and one
trigger that waits for the watermark or the end. (Sums of floats are added in another order.) The
watermark needs care: a segment behind the watermark of its own origin would have made an extent
fire twice. `Taken.is_behind` finds one. A query of Spark runs again without combining then; a peer
sends the batch as segments.

These are the rules of both engines. A query of Spark combines wherever they allow it; peers do for
tasks with `combine: true`, because to fold twice pays only where groups are few.

Rejected: `window()` and `groupBy` of Spark. Its own aggregation begins with the same step, a
partial one before the shuffle, but segments would have to move to the JVM for it, and their types
would have to be known.
"""

from __future__ import annotations

from onyx.model.job import CatalogEntry, Job, Window
from onyx.model.kinds import AGGREGATIONS, TRIGGERS, WINDOWS, aggregation_name
from onyx.model.workflow import ancestors


def against_combining(job: Job, window: Window, assigned: bool) -> str:
    """Why a window cannot be combined before the shuffle; empty if it can.

    Args:
        assigned: whether inputs above its task assign watermarks.
    """
    return _of_task(job, window.task) or _of_window(window) or _of_triggers(job, window, assigned)


def against_combining_on_peers(job: Job, window: Window) -> str:
    """Why peers cannot combine a window before its segments are sent; empty if they can."""
    if job.guarantee == "at-most-once":
        return "guarantee: at-most-once has no lineage to send with states"
    if window.allowed_lateness is not None and job.guarantee != "exactly-once":
        return (
            "allowedLateness needs guarantee: exactly-once, by which late segments are sent again"
        )
    if window.engine == "spark":
        return "a window with engine: spark keeps segments"
    if _is_watched(job, window.task):
        return "lifecycles look at its batches"
    assigned = any(map(assigns_watermarks, job.catalog))
    return against_combining(job, window, assigned)


def assigns_watermarks(entry: CatalogEntry) -> bool:
    """Whether a task is an input that says how far event time has come."""
    return entry.watermark_key is not None or entry.assign_watermark_fn is not None


def _is_watched(job: Job, task: str) -> bool:
    return any(each.task in (task, "all") for each in job.lifecycles)


def _of_task(job: Job, task: str) -> str:
    entry = job.entry(task)
    if entry.type != "reduce":
        return "its task passes segments on"
    if entry.maker is not None:
        return "its task has a function"
    if entry.uniqueness_key is not None:
        return "uniquenessKey looks at each segment"
    if entry.dead_letter is not None:
        return "deadLetter takes segments that fail one by one"
    if any(each.from_task == task for each in job.flow_conditions):
        return "flow conditions look at each segment"
    if any(task in ancestors(job.workflow, each.task) for each in job.windows):
        return "windows below it hear each watermark"
    if any(task in ancestors(job.workflow, each.name) for each in job.catalog if each.sides):
        return "joins below it hear each watermark"
    return ""


def _of_window(window: Window) -> str:
    name = aggregation_name(window.aggregation)
    if not WINDOWS[window.type].known:
        return f"{window.type} extents depend on all segments"
    if name not in AGGREGATIONS or AGGREGATIONS[name].native.collects:
        return f"states of {name} are not numbers"
    if "ordered-log" in window.storage_strategy:
        return "an ordered-log keeps segments"
    return ""


def _of_triggers(job: Job, window: Window, assigned: bool) -> str:
    triggers = [each for each in job.triggers if each.window_id == window.id]
    if len(triggers) != 1:
        return "it has several triggers" if triggers else ""
    trigger = triggers[0]
    if trigger.type not in TRIGGERS or not TRIGGERS[trigger.type].settled:
        return f"trigger {trigger.type} looks at each segment"
    if not assigned and (not WINDOWS[window.type].single or trigger.fire_all_extents):
        return "no input assigns watermarks, so each segment is one"
    return ""
