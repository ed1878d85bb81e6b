"""Cases about triggers alone: when each fires, seen from real windows around it.

A trigger with a list of events has a global window, which is always there to fire. One about bounds
and a coordinate is asked by the rule that windows use; those of 0.9, where the segments are the
watermark, as the rule for segments. Events that we do not have (`recovered`, the end of a
lifecycle) fire nothing.

The real test of the timer sleeps, so that each event comes a little later than it says.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.windowing import function, groups_of, trigger_of, window_of, windows_of

from onyx.model.job import Trigger
from onyx.windows.assigning.coordinates import Coordinates
from onyx.windows.compile import compile_window
from onyx.windows.task_windows import TaskWindows
from onyx.windows.triggers.segment import SegmentTrigger, counted
from onyx.windows.triggers.trigger import Trigger as CompiledTrigger
from onyx.windows.triggers.watermark import WatermarkTrigger

GLOBAL = {
    "window/id": "w",
    "window/task": "identity",
    "window/type": "global",
    "window/aggregation": "onyx.windowing.aggregation/count",
}


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    if "events" in case:
        return _events(case)
    got = _decision(case)
    return None if got == case["fires"] else f"expected {case['fires']}, got {got}"


def _events(case: dict[str, Any]) -> str | None:
    trigger = {"trigger/window-id": "w", **case["trigger"]}
    whole = {"task_map": {}, "windows": [GLOBAL], "triggers": [trigger]}
    windows, entry = windows_of(whole, assigned=False)
    slept = 1 if case["kind"] == "asserted-by-test" else 0
    fired = 0
    for number, event in enumerate(case["events"]):
        now_ms = event.get("at_ms", 0) + slept * number
        fires = _happens(windows, groups_of(entry, [{}]), event["event-type"], now_ms)
        fired += fires
        if fires != event.get("fires", fires):
            return f"event {number}: expected {event['fires']}, got {fires}"
        if fired != event.get("calls_so_far", fired):
            return f"event {number}: expected {event['calls_so_far']} calls, got {fired}"
        due = event.get("state", {}).get("fire-time") if "at_ms" in event else None
        if due is not None and windows.next_tick_ms != due + 1:
            return f"event {number}: expected to be due at {due}, not {windows.next_tick_ms}"
    return None


def _happens(windows: TaskWindows, groups: list[Any] | None, event: str, now_ms: int) -> bool:
    match event:
        case "new-segment":
            return bool(windows.add([{}], groups, now_ms).firings)
        case "timer-tick":
            return bool([*windows.tick(now_ms)])
        case "job-completed":
            return bool([*windows.complete([0], now_ms)])
    return False


def _decision(case: dict[str, Any]) -> bool:
    event = case.get("event_type", "new-segment")
    if event == "job-completed":
        return True
    trigger = trigger_of({"trigger/window-id": "w", **case["trigger"]}, 0)
    compiled = _compiled(trigger, assigned="input_watermark" in case)
    if "state_before" in case:
        assert isinstance(compiled, SegmentTrigger)
        return event == "new-segment" and (
            counted(case["state_before"], compiled.threshold) == compiled.threshold
        )
    upper = case["upper_bound"]
    lower = case.get("lower_bound", upper)
    if "input_watermark" in case:
        return event == "watermark" and case["input_watermark"] >= compiled.due(lower, upper, 0)
    if not case["segment"]:
        return False
    coordinates = Coordinates("window w of task t", "event-time", time=True)
    coordinate = coordinates.of([case["segment"]])[0][0]
    assert isinstance(compiled, WatermarkTrigger)
    return compiled.reached(coordinate, lower, upper)


def _compiled(trigger: Trigger, assigned: bool) -> CompiledTrigger:
    window = window_of(GLOBAL, "identity")
    return compile_window(window, [trigger], assigned, function).triggers[0]
