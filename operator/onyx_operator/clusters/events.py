"""Which events follow from a change of status: one for each condition that says something new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onyx_operator.conditions import by_type

_QUIET = ("WorkersStarting", "Updating", "ScalingDown", "NoWorkers", "Applied")
"""Reasons that come and go with any change, and are in the status."""


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """(reason, message, whether it is a warning) of each event."""
    old, new = by_type(before), by_type(after)
    for name, condition in new.items():
        if name != "Reconciled" and condition["reason"] == new["Reconciled"]["reason"]:
            continue  # for that reason, which is an event already
        known = old.get(name, {})
        # How many workers are ready, and how long a crashing one waits, is no news each time.
        asked = ("reason", "message") if name == "Reconciled" else ("reason",)
        same = all(known.get(key) == condition[key] for key in asked)
        if not same and condition["reason"] not in _QUIET:
            yield condition["reason"], condition["message"], condition["status"] == "False"
