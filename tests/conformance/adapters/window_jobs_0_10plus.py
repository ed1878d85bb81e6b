"""Cases about windows and triggers of 0.10 and later: steps, calls, what is emitted and what stays.

A case is run with watermarks assigned by its input when it has any.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.values import same, value
from tests.conformance.windowing import (
    Call,
    calls,
    differences,
    expected_calls,
    is_unordered,
    taken,
    windows_of,
)

from onyx.errors import UserError
from onyx.windows.firing import Firing
from onyx.windows.task_windows import TaskWindows

EVENTS = ("watermark", "timer-tick", "job-completed")


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    wanted = case["expected"]
    try:
        windows, entry = windows_of(case, assigned=any("watermarks" in s for s in case["steps"]))
    except UserError as error:
        return None if "threw" in wanted else f"an error: {error}"
    if "threw" in wanted:
        return f"expected an error: {wanted['threw']}"
    got: list[Call] = []
    emitted: list[Any] = []
    for index, step in enumerate(case["steps"]):
        fired = taken(windows, entry, step)
        got += calls(index, fired)
        emitted += [{"after-step": index, "segment": each} for one in fired for each in _emit(one)]
    return (
        differences(got, expected_calls(wanted["trigger-calls"], "after-step"), is_unordered(case))
        or (None if emitted == value(wanted["emitted"]) else f"emitted {emitted}")
        or _final(case, windows)
    )


def _emit(firing: Firing) -> list[Any]:
    """What the emit functions of the cases return."""
    match (firing.trigger.emit or "").rpartition(":")[2]:
        case "emit_segment":
            event = {"event-type": firing.event_type, "state": firing.state}
            names = {"window/id": firing.window.id, "trigger/id": firing.trigger.id}
            return [{**event, **names}]
        case "emit_many":
            return [{"lower": firing.lower}, {"upper": firing.upper, "state": firing.state}]
    return []


def _final(case: dict[str, Any], windows: TaskWindows) -> str | None:
    got = [
        [window["window/id"], each.group, each.lower, each.upper, each.state]
        for window in case["windows"]
        for each in windows.query(window["window/id"])
    ]
    keys = ("window-id", "group-key", "lower-bound", "upper-bound", "state")
    wanted = [[value(each[key]) for key in keys] for each in case["expected"]["final-state"]]
    unordered = is_unordered(case)
    alike = len(got) == len(wanted) and all(
        any(each[:-1] == other[:-1] and same(each[-1], other[-1], unordered) for other in got)
        for each in wanted
    )
    return None if alike else f"final states: wanted {wanted}, got {got}"
