"""What the jobs of cases name: how their segments are read, and what their triggers say."""

from __future__ import annotations

from typing import Any

from tests.conformance.values import encoded, value

Segment = dict[str, Any]


def event_time(line: Segment) -> int:
    """A line of a case is a segment, which says nothing of event time, or a watermark."""
    return int(line.get("mark", 0))


def segment(line: Segment) -> Segment | list[Segment]:
    """The segment of a line, as the case has it; a watermark is none."""
    return value(line["segment"]) if "segment" in line else []


def call(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> Segment:
    """One call of a trigger's function."""
    fields = {key: state_event[key] for key in ("group_key", "lower_bound", "upper_bound")}
    said = {"trigger": trigger.id, "event": state_event["event_type"]}
    return {**said, "call": encoded({**fields, "state": state})}


def true_pred(trigger: Any, event: Any) -> bool:
    return True


def done_pred(trigger: Any, event: Any) -> bool:
    return bool(event["segment"].get("done?"))


def state(call: Any) -> Any:
    """The state of what `call` has said."""
    return value(call)["state"]
