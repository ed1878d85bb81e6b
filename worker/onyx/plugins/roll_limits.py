"""When an output starts a new part."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RollLimits:
    """A part is finished when it reaches any of these."""

    size_bytes: int = 134_217_728
    segments: int = 1_000_000
    age_s: float = 5.0
    """Keep it well below the job's `pendingTimeout`: until then its segments are not acked."""


ROLL_LIMITS = RollLimits()
"""Of outputs that name none."""
