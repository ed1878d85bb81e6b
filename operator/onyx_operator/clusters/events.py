"""The events that follow from a change of an OnyxCluster's status: one for each condition with a
new reason. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onyx_operator.conditions import News, by_type

_QUIET = (
    "Connecting",
    "WorkersStarting",
    "Updating",
    "ScalingDown",
    "NoWorkers",
    "Applied",
    "NoDeaths",
    "ServerStarting",
    "ExecutorsStarting",
)
"""Reasons that come and go with any change, and are in the status."""


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[News]:
    """The events between two statuses."""
    old, new = by_type(before), by_type(after)
    for name, condition in new.items():
        if name != "Reconciled" and condition["reason"] == new["Reconciled"]["reason"]:
            continue  # for that reason, which is an event already
        known = old.get(name, {})
        # How many workers are ready, and how long a crashing one waits, is no news each time.
        compared = ("reason", "message") if name == "Reconciled" else ("reason",)
        same = all(known.get(key) == condition[key] for key in compared)
        if not same and condition["reason"] not in _QUIET:
            yield News(condition["reason"], condition["message"], condition["status"] == "False")
