"""Functions that jobs in tests of queries name."""

from __future__ import annotations

import json
from typing import Any


def extent(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    lower = state_event["lower_bound"]
    bound = None if lower == float("-inf") else lower
    return {"group": state_event["group_key"], "lower": bound, "value": state}


def spread(segment: dict[str, Any]) -> list[dict[str, Any]]:
    """So many segments as it says, perhaps none."""
    return [segment | {"copy": number} for number in range(segment["v"] % 3)]


def fails(segment: dict[str, Any]) -> dict[str, Any]:
    """Raises for some segments, whenever they are tried."""
    if segment["v"] == 7:
        raise ValueError("seven")
    return segment


def busy(segment: dict[str, Any]) -> dict[str, Any]:
    """Raises for some segments."""
    if segment["v"] in (4, 8):
        raise OSError("busy")
    return segment


def is_busy(event: Any, old: Any, error: Any, all_new: Any) -> bool:
    """Whether `busy` has raised."""
    return isinstance(error, OSError)


def fired(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    """A firing as text that can be counted."""
    bounds = [str(state_event[key]) for key in ("lower_bound", "upper_bound")]
    return {"fired": json.dumps([state_event["group_key"], *bounds, state], default=list)}


def same(given: Any) -> Any:
    """A segment, or a record batch, as it is."""
    return given
