"""When a process reports which trees it works on: several times in `pendingTimeout` of a job."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onyx.base.seams import Clock
from onyx.ids import JobId
from onyx.model.job import Job
from onyx.model.workflow import begins_trees

REPORTS_A_TIMEOUT = 4
"""So that several may be lost, or come late."""
LOOK_INTERVAL_S = 0.25
LOOK_INTERVAL_MIN_S = 0.02


class _Times(msgspec.Struct):
    """When a job is reported next, and how often it is."""

    job: Job
    period_s: float
    next_s: float

    def follow(self, job: Job, now_s: float) -> None:
        """Its values may have changed since the last look: then tasks have another job."""
        if job is not self.job:
            self.job, self.period_s = job, period_of(job)
            self.next_s = min(self.next_s, now_s + self.period_s)


class HoldTimes:
    """The times of one incarnation, by job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[JobId, _Times] = {}

    def interval_s(self) -> float:
        """How long to wait until the next look at what is due."""
        shortest_s = min((each.period_s for each in self._jobs.values()), default=LOOK_INTERVAL_S)
        return max(LOOK_INTERVAL_MIN_S, min(LOOK_INTERVAL_S, shortest_s))

    def due(self, jobs: Mapping[JobId, Job]) -> set[JobId]:
        """Jobs that are to be reported now; those that have no task here are forgotten."""
        now_s = self._clock.monotonic_s()
        for job in self._jobs.keys() - jobs.keys():
            del self._jobs[job]
        due = set()
        for job, manifest in jobs.items():
            times = self._jobs.get(job)
            if times is None:
                period_s = period_of(manifest)
                self._jobs[job] = _Times(manifest, period_s, now_s + period_s)
                continue
            times.follow(manifest, now_s)
            if now_s >= times.next_s:
                times.next_s = now_s + times.period_s
                due.add(job)
        return due


def period_of(job: Job) -> float:
    """Between two reports about a job, in seconds."""
    began = [entry for entry in job.catalog if begins_trees(job, entry.name)]
    shortest_ms = min((entry.pending_timeout for entry in began), default=60_000)
    return shortest_ms / 1_000 / REPORTS_A_TIMEOUT
