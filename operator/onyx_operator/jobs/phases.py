"""Counts OnyxJobs by phase, for the metrics."""

from __future__ import annotations

from collections import Counter

from onyx.model.crd.status import PHASES
from onyx_operator.context import Operator


class Phases:
    """The phases of all OnyxJobs that are known."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    async def count(self) -> None:
        """Count them anew."""
        jobs = self._operator.jobs.store
        phases = Counter((body.get("status") or {}).get("phase") for _, body in jobs.items())
        self._operator.metrics.jobs({phase: phases[phase] for phase in PHASES})
