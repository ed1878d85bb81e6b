"""The windows of a task made ready to run: functions found, units in numbers, all checked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from onyx.errors import UserError
from onyx.flow.batch import Segment
from onyx.flow.predicates import Resolve
from onyx.model import names
from onyx.model.job import Job, Trigger, Window
from onyx.windows.aggregations import aggregation as aggregations
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.assigning.places import Places
from onyx.windows.assigning.tiling import Tiling
from onyx.windows.firing import Number
from onyx.windows.triggers.trigger import CompiledTrigger, Refinement
from onyx.windows.units import is_time, standard
from onyx.windows.user_functions import find_calls, find_function


@dataclass(frozen=True, slots=True)
class CompiledWindow:
    """One window with its triggers."""

    window: Window
    task: str
    aggregation: Aggregation
    places: Places | None
    """None for a global window, where every segment has the same place."""
    tiling: Tiling | None
    """Of a fixed or sliding window."""
    gap: int
    """Of a session window; 0 for all others."""
    triggers: tuple[CompiledTrigger, ...]
    lateness: int | None
    watermark_of_segments: bool
    """Whether a watermark is needed that nobody assigns: then the segments are the watermark."""


@dataclass(frozen=True, slots=True)
class CompiledWindows:
    """What `TaskWindows` runs."""

    task: str
    windows: tuple[CompiledWindow, ...]
    grouped: bool


def compile_windows(job: Job, task: str, resolve: Resolve) -> CompiledWindows | None:
    """The windows and triggers of a task; None when it has none.

    Raises:
        UserError: a function is missing or of the wrong kind, or an aggregation cannot do what the
            window asks of it; the window, trigger and key are named.
    """
    windows = [window for window in job.windows if window.task == task]
    if not windows:
        return None
    entry = job.entry(task)
    assigned = any(
        entry.assign_watermark_fn is not None or entry.watermark_key is not None
        for entry in job.catalog
    )
    compiled = tuple(
        compile_window(
            window,
            [trigger for trigger in job.triggers if trigger.window_id == window.id],
            assigned,
            resolve,
        )
        for window in windows
    )
    grouped = entry.group_by_key is not None or entry.group_by_fn is not None
    return CompiledWindows(task, compiled, grouped)


def compile_window(
    window: Window, triggers: Sequence[Trigger], assigned: bool, resolve: Resolve
) -> CompiledWindow:
    """One window; `assigned` says whether inputs assign watermarks.

    Raises:
        UserError: as `compile_windows`.
    """
    where = f"window {window.id} of task {window.task}"
    places = _places(window)
    aggregation = _aggregation(window, where, resolve)
    if "ordered-log" in window.storage_strategy and "incremental" not in window.storage_strategy:
        aggregation = _ordered(window, where, aggregation, places)
    if window.type == "session" and not aggregation.mergeable:
        raise UserError(
            f"{where}: {_name(window)} has no super_aggregation, which a session window needs to "
            "join two sessions; add it, or use another type of window"
        )
    ready = tuple(
        _trigger(trigger, f"{index}", where, assigned, resolve)
        for index, trigger in enumerate(triggers)
    )
    lateness = None if window.allowed_lateness is None else standard(window.allowed_lateness)
    _check_lateness(ready, lateness, where)
    needs = lateness is not None or any(trigger.by_watermark for trigger in ready)
    return CompiledWindow(
        window,
        window.task,
        aggregation,
        None if window.type == "global" else places,
        _tiling(window),
        0 if window.timeout_gap is None else standard(window.timeout_gap),
        ready,
        lateness,
        needs and not assigned and window.type != "global",
    )


def _places(window: Window) -> Places | None:
    if window.window_key is None:
        return None
    amount = window.range or window.timeout_gap
    return Places(window.id, window.task, window.window_key, time=amount is None or is_time(amount))


def _tiling(window: Window) -> Tiling | None:
    if window.range is None:
        return None
    width = standard(window.range)
    slide = width if window.slide is None else standard(window.slide)
    return Tiling(window.min_value, width, slide)


def _name(window: Window) -> str:
    return window.aggregation if isinstance(window.aggregation, str) else window.aggregation[0]


def _aggregation(window: Window, where: str, resolve: Resolve) -> Aggregation:
    name = _name(window)
    key = window.aggregation[1] if not isinstance(window.aggregation, str) else ""
    if name in names.AGGREGATIONS:
        return built_in(name, key, window.init, f"{where}: {name}")
    calls = find_calls(
        name,
        where,
        ("create_state_update", "apply_state_update"),
        ("init", "super_aggregation"),
        resolve,
    )
    if "init" not in calls and window.init is None:
        raise UserError(f"{where}: {name} returns no init; add it, or give the window an init")
    return aggregations.Own(window, calls)


def built_in(name: str, key: str, init: Any, where: str) -> Aggregation:
    """One of the aggregations that come with Onyx; `where` begins what it says about segments."""
    make: dict[str, Callable[[], Aggregation]] = {
        "average": lambda: aggregations.Average(where, key),
        "collect-by-key": lambda: aggregations.CollectByKey(where, key),
        "collect-key-value": lambda: aggregations.CollectKeyValue(key),
        "conj": aggregations.Conj,
        "count": aggregations.Count,
        "max": lambda: aggregations.Extreme(where, key, init, max),
        "min": lambda: aggregations.Extreme(where, key, init, min),
        "sum": lambda: aggregations.Sum(where, key),
    }
    return make[name]()


def _ordered(
    window: Window, where: str, aggregation: Aggregation, places: Places | None
) -> Aggregation:
    if window.type in ("session", "sliding"):
        raise UserError(f"{where}: a {window.type} window cannot keep an ordered-log")
    if places is None:
        raise UserError(f"{where}: an ordered-log needs a windowKey to order by")
    key, number = window.window_key or "", places.number

    def place_of(segment: Segment) -> Number:
        return number(segment.get(key))

    return aggregations.OrderedLog(aggregation, place_of)


def _trigger(
    trigger: Trigger, index: str, where: str, assigned: bool, resolve: Resolve
) -> CompiledTrigger:
    where = f"trigger {trigger.id or index} of {where}"
    kind = trigger.type if trigger.type in names.TRIGGERS else "own"
    calls = (
        find_calls(trigger.type, where, ("trigger_fire",), ("init_state", "next_state"), resolve)
        if kind == "own"
        else {}
    )
    watching = kind in ("watermark", "percentile-watermark")
    by_segment = not assigned and (trigger.fire_all_extents or kind == "percentile-watermark")
    if not watching:
        by_segment = kind != "timer"
    return CompiledTrigger(
        trigger,
        trigger.id or index,
        kind,
        _refinement(trigger, where, resolve),
        threshold=0 if trigger.threshold is None else standard(trigger.threshold),
        period_ms=None if trigger.period is None else standard(trigger.period),
        delay=0 if trigger.delay is None else standard(trigger.delay),
        share=trigger.watermark_percentage if kind == "percentile-watermark" else None,
        pred=None if trigger.pred is None else find_function(trigger.pred, where, resolve),
        calls=calls,
        by_watermark=watching and not by_segment,
        by_segment=by_segment,
    )


def _refinement(trigger: Trigger, where: str, resolve: Resolve) -> Refinement:
    name = trigger.refinement
    own = name is not None and name not in names.REFINEMENTS
    return Refinement(
        discards=name == "discarding",
        evicts="all" in trigger.post_evictor,
        calls=find_calls(name, where, ("create_state_update", "apply_state_update"), (), resolve)
        if own and name is not None
        else {},
    )


def _check_lateness(triggers: Sequence[CompiledTrigger], lateness: int | None, where: str) -> None:
    for each in triggers:
        if lateness is not None and each.by_watermark and each.delay > lateness:
            raise UserError(
                f"{where}: trigger {each.name} has a delay that is longer than allowedLateness, "
                "so extents would be dropped before it fires; make allowedLateness as long"
            )
