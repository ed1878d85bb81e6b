"""The windows of a task compiled: functions found, amounts in numbers, all checked once."""

from __future__ import annotations

from collections.abc import Sequence

from onyx.errors import UserError
from onyx.flow.batch import Segment
from onyx.flow.predicates import Resolve
from onyx.keystate.extents import Number
from onyx.model.job import Job, Trigger, Window
from onyx.model.kinds import WINDOWS, aggregation_name
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.collecting import OrderedLog
from onyx.windows.aggregations.table import compile_aggregation
from onyx.windows.assigning.coordinates import Coordinates
from onyx.windows.compiled import CompiledWindow, CompiledWindows
from onyx.windows.triggers.table import compile_trigger
from onyx.windows.triggers.trigger import TriggerDeclaration
from onyx.windows.types.table import TYPES
from onyx.windows.units import is_time, standard


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
            columns=entry.batch_format == "arrow",
        )
        for window in windows
    )
    return CompiledWindows(task, compiled, entry.is_grouped)


def compile_window(
    window: Window,
    triggers: Sequence[Trigger],
    assigned: bool,
    resolve: Resolve,
    columns: bool = False,
) -> CompiledWindow:
    """One window.

    Args:
        assigned: whether inputs assign watermarks.
        columns: whether the task takes columns.

    Raises:
        UserError: as `compile_windows`.
    """
    where, kind = f"window {window.id} of task {window.task}", TYPES[window.type]
    coordinates = _coordinates(window)
    aggregation = _aggregation(window, where, resolve, coordinates)
    ready = tuple(
        compile_trigger(
            TriggerDeclaration(
                trigger,
                trigger.id or f"{index}",
                f"trigger {trigger.id or index} of {where}",
                assigned,
                resolve,
                columns,
            )
        )
        for index, trigger in enumerate(triggers)
    )
    lateness = None if window.allowed_lateness is None else standard(window.allowed_lateness)
    for each in ready:
        each.check_lateness(lateness, where)
    needs = lateness is not None or any(trigger.by_watermark for trigger in ready)
    return CompiledWindow(
        window,
        aggregation,
        coordinates if kind.bounded else None,
        ready,
        lateness,
        needs and not assigned and kind.bounded,
        columns,
    )


def _aggregation(
    window: Window, where: str, resolve: Resolve, coordinates: Coordinates | None
) -> Aggregation:
    aggregation = compile_aggregation(window, where, resolve)
    if "ordered-log" in window.storage_strategy and "incremental" not in window.storage_strategy:
        if not WINDOWS[window.type].ordered:
            raise UserError(f"{where}: a {window.type} window cannot keep an ordered-log")
        aggregation = _ordered(window, where, aggregation, coordinates)
    if TYPES[window.type].merges and not aggregation.mergeable:
        raise UserError(
            f"{where}: {aggregation_name(window.aggregation)} has no {aggregation.merged_by}, "
            f"which a {window.type} window needs to join two extents; add it, or use another type "
            "of window"
        )
    return aggregation


def _coordinates(window: Window) -> Coordinates | None:
    if window.window_key is None:
        return None
    bounded = TYPES[window.type].bounded
    amount = (window.range or window.timeout_gap) if bounded else None
    where = f"window {window.id} of task {window.task}"
    least = window.min_value if _clips(window) else None
    return Coordinates(
        where, window.window_key, time=amount is None or is_time(amount), least=least
    )


def _clips(window: Window) -> bool:
    """Whether extents that begin before `minValue` are cut there, so that what is below it is in
    none of the bounds that they have."""
    return (
        WINDOWS[window.type].overlapping
        and window.range is not None
        and window.slide is not None
        and standard(window.range) > standard(window.slide)
    )


def _ordered(
    window: Window, where: str, aggregation: Aggregation, coordinates: Coordinates | None
) -> Aggregation:
    if coordinates is None:
        raise UserError(f"{where}: an ordered-log needs a windowKey to order by")
    key, order = window.window_key or "", coordinates.order

    def coordinate_of(segment: Segment) -> Number:
        return order(segment.get(key))

    return OrderedLog(aggregation, coordinate_of)
