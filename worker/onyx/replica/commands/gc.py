"""Jobs that have ended are forgotten. The caller then replaces the origin and trims the log.

Without `jobs`, as in the original, all of them. Our caller names those of which it has deleted what
lies beside the log (frontiers): an id that is free again must not find the frontiers of another.
So nothing named can stay any more; a job that upgrades one of them and has not yet carried over its
state cannot run and is killed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from onyx.ids import Position
from onyx.replica import jobs
from onyx.replica.command import Command
from onyx.replica.spec import Job
from onyx.replica.state import Replica


class Gc(Command, frozen=True):
    """Forget jobs that have ended."""

    id: Annotated[str, Meta(max_length=256)]
    """The caller, who alone trims the log."""
    jobs: tuple[Job, ...] | None = None
    """Those to forget; others, and those that have not ended, stay."""
    carried_over: tuple[Job, ...] = ()
    """Jobs that have carried over the state of the old job and need that job no more."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change when none of the named jobs has ended."""
        ended = (*replica.completed_jobs, *replica.killed_jobs)
        gone = frozenset(ended if self.jobs is None else self.jobs)
        forgotten = [job for job in ended if job in gone]
        if not forgotten:
            return replica
        for job in sorted(replica.jobs):
            if replica.upgrades(job) in forgotten and job not in self.carried_over:
                replica = jobs.kill(replica, job)
        return replace(
            jobs.forget(replica, forgotten),
            completed_jobs=tuple(job for job in replica.completed_jobs if job not in gone),
            killed_jobs=tuple(job for job in replica.killed_jobs if job not in gone),
        )
