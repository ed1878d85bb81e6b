"""Which events follow from a change of status: one for each condition that says something new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onyx_operator.conditions import by_type

_QUIET = ("WorkersStarting", "Updating", "ScalingDown", "NoWorkers", "Applied")
"""Reasons that come and go with any change, and are in the status."""


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """(reason, message, whether it is a warning) of each event."""
    old = by_type(before)
    for name, condition in by_type(after).items():
        reason, message = condition["reason"], condition["message"]
        known = old.get(name, {})
        if reason in _QUIET or (known.get("reason"), known.get("message")) == (reason, message):
            continue
        if reason == known.get("reason") and condition["status"] == "True":
            continue
        yield reason, message, condition["status"] == "False"
