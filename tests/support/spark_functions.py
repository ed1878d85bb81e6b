"""Functions that jobs in tests of queries name."""

from __future__ import annotations

from typing import Any


def extent(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    lower = state_event["lower_bound"]
    bound = None if lower == float("-inf") else lower
    return {"group": state_event["group_key"], "lower": bound, "value": state}


def spread(segment: dict[str, Any]) -> list[dict[str, Any]]:
    """So many segments as it says, perhaps none."""
    return [segment | {"copy": number} for number in range(segment["v"] % 3)]
