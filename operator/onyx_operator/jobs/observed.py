"""Everything that a plan for an OnyxJob is made from besides its spec, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from onyx_operator.jobs.record import Record
from onyx_operator.logs.state import Log, Trouble, Upgrade


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that a plan is made from, besides the spec."""

    now_s: float
    record: Record
    log: Log | Trouble
    invalid_s: float = 0.0
    """For how long condition Validated has been False."""
    told: bool = False
    """The status is about the spec as it is now."""
    upgrade: Upgrade | None = None
    """About the job that `versions.to_upgrade` names; None when there is none."""
