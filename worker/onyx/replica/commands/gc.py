"""Jobs that have ended are forgotten: their records go, and with them all that lies beside the log.

Two steps, because an id that is free again must not find the frontiers of another job. First the
records go, and it stays known how each job ended. Then whoever collects deletes what lies beside
the log, which nobody can ask for any more. Only a later entry lets ids go, of those that have
nothing left.

A job whose state another one still has to carry over stays.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from onyx.ids import JobId, Position
from onyx.replica import jobs
from onyx.replica.command import Command
from onyx.replica.members import without
from onyx.replica.spec import Job
from onyx.replica.state import Replica

REMEMBERED_MAX = 1_000_000


class Gc(Command, frozen=True):
    """Forget jobs that have ended."""

    id: Annotated[str, Meta(max_length=256)]
    """The caller."""
    jobs: tuple[Job, ...] | None = None
    """The jobs to forget; others, and those that have not ended, stay. None: all, as in the
    original."""
    carried_over: tuple[Job, ...] = ()
    """Jobs that have carried over the state of the old job and need that job no more."""
    remember: Annotated[int, Meta(ge=0, le=REMEMBERED_MAX)] = 0
    """The number of forgotten jobs, the newest ones, of which it stays known how they ended. The
    ids of others are free again, except of those that this entry forgets."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change when none of the named jobs has ended and no more than these are remembered."""
        needed = {replica.upgrades(job) for job in replica.jobs if job not in self.carried_over}
        ended = (*replica.completed_jobs, *replica.killed_jobs)
        gone = frozenset(ended if self.jobs is None else self.jobs) - needed
        forgotten = [job for job in ended if job in gone]
        completed = [job for job in replica.completed_jobs if job in gone]
        killed = [job for job in replica.killed_jobs if job in gone]
        known = len(replica.completed_before) + len(replica.killed_before)
        free = _oldest(replica, known + len(forgotten) - self.remember)
        if not forgotten and not free:
            return replica
        before = without(replica.completed_before, *free)
        killed_before = without(replica.killed_before, *free)
        return replace(
            jobs.forget(replica, forgotten),
            completed_jobs=tuple(job for job in replica.completed_jobs if job not in gone),
            killed_jobs=tuple(job for job in replica.killed_jobs if job not in gone),
            completed_before=before.update(dict.fromkeys(completed, position)),
            killed_before=killed_before.update(dict.fromkeys(killed, position)),
        )


def _oldest(replica: Replica, count: int) -> list[JobId]:
    """So many of the jobs that were forgotten first, as far as there are any."""
    if count <= 0:
        return []
    both = (replica.completed_before, replica.killed_before)
    found = sorted((position, job) for each in both for job, position in each.items())
    return [job for _, job in found[:count]]
