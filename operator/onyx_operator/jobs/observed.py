"""Everything that a plan for an OnyxJob is made from, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import field

from onyx_operator.jobs.record import Record
from onyx_operator.jobs.spec import Spec
from onyx_operator.jobs.versions import Versions, versions
from onyx_operator.logs.state import UNKNOWN, Log, LogJob, Trouble, Upgrade


class Observed(msgspec.Struct, frozen=True):
    """An OnyxJob and what the log of its cluster says; made by `observed`."""

    spec: Spec
    now_s: float
    """Seconds since the epoch."""
    record: Record
    """What the status says of the job."""
    log: Log | Trouble
    versions: Versions
    """Which job the object has, which one its spec asks for, and which one that upgrades."""
    upgrade: Upgrade | None = None
    """The answer of the log whether that upgrade is possible; None when there is none to make."""
    invalid_s: float = 0.0
    """For how long condition Validated has been False."""
    unfit: str = ""
    """Why the pods of the cluster could not run the job that the spec asks for, a line each."""
    status_is_current: bool = False
    """The status is about the spec as it is now."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """The status that the object has now."""

    @property
    def current_job(self) -> LogJob:
        """The job that the object has, as the log knows it."""
        current = self.versions.current
        if current is None or isinstance(self.log, Trouble):
            return UNKNOWN
        return self.log.job(current.job_id)


def observed(spec: Spec, now_s: float, record: Record, log: Log | Trouble, **more: Any) -> Observed:
    """An observation. The versions are decided here, once, for everything that follows.

    Args:
        now_s: seconds since the epoch.
        log: with the jobs of `ids_of_interest`, or why nothing is known of them.
        more: other fields of `Observed`.
    """
    found = Versions() if isinstance(log, Trouble) else versions(spec, record, log)
    return Observed(spec, now_s, record, log, found, **more)
