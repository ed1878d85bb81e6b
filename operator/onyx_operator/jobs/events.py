"""The event that follows from a change of an OnyxJob's status: one for each new reason. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onyx_operator.conditions import News, by_type

_QUIET = (
    "Submitted",
    "WaitingForPeers",
    "Starting",
    "Connecting",
    "Draining",
    "Suspended",
    "Deleted",
)
"""Reasons that pass at once, or that the event of an action has reported already."""
_WRONG_PHASES = ("Failed", "Invalid", "Unknown")
_WRONG_REASONS = ("Displaced", "OutOfMemory", "WorkersDie", "UpgradeRefused", "BackOff", "Retrying")
_WRONG_CLUSTERS = (
    "ClusterNotFound",
    "ClusterRefused",
    "ClusterNotReady",
    "LogUnreachable",
    "TooManyClusters",
)
_WARNING = frozenset((*_WRONG_PHASES, *_WRONG_REASONS, *_WRONG_CLUSTERS))


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[News]:
    """The events between two statuses."""
    phase, reason = after["phase"], after["reason"]
    if (before.get("phase"), before.get("reason")) == (phase, reason) or reason in _QUIET:
        return
    invalid = by_type(after).get("Validated", {}).get("status") == "False"
    yield News(reason, after["message"], invalid or is_warning(phase, reason))


def is_warning(phase: str, reason: str = "") -> bool:
    """Whether something is wrong with a job in this phase and for this reason."""
    return not _WARNING.isdisjoint((phase, reason))
