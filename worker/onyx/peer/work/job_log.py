"""What the log of a worker says of jobs: events of entries, and of tasks that start and stop here.

A group logs what happens to the jobs on which it has peers, or had them until then. Of a job on
which nobody has any, one group logs it, by the position of the entry, so that it is logged once.
What happens to workers is in the log of each of them, because each may have to do with it.

Entries from before the group was a member are the past: whoever starts a worker does not want a
year of history in its log (`onyx events` has it). And one entry may concern a thousand jobs, as
when a worker leaves: then the first events are logged, and the number of the others.

Peers that get a task together, or lose it, share a line. Name and metadata of the job, which each
line has, come with its submission: nobody has to have read the job for them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from onyx.ids import AllocationVersion, GroupId, JobId, PeerId, TaskName
from onyx.replica import story
from onyx.replica.command import Entry
from onyx.replica.effects import Effect, SealTask, StartTask, StopTask
from onyx.replica.job_events import (
    MORE_EVENTS,
    TASK_SEALS,
    TASK_STARTED,
    TASK_STOPPED,
    EventKind,
    EventValue,
    JobEvent,
    local_event,
    some,
)
from onyx.replica.state import JobRun, Replica
from onyx.telemetry.logs import happened

logger = logging.getLogger("onyx.peer")

EVENTS_MAX = 100
"""Events of one entry that are logged."""


class JobLog:
    """The log of one incarnation about jobs. Used by the group's thread."""

    def __init__(self, group: GroupId) -> None:
        self._group = group

    def read(self, old: Replica, entry: Entry, new: Replica) -> None:
        """Log what has happened with an entry. Never raises: all groups read the same entry, and a
        bug in what is only said must not end them."""
        if self._group in old.groups or self._group in new.groups:
            try:
                self._read(old, entry, new)
            except Exception:
                logger.exception("a bug in Onyx: please report it")

    def _read(self, old: Replica, entry: Entry, new: Replica) -> None:
        me = self._group
        found = story.events_of(old, entry, new, lambda job: is_business_of(me, job, old, new))
        mine = [each for each in found if self._is_mine(each)]
        for event in mine[:EVENTS_MAX]:
            happened(event)
        if len(mine) > EVENTS_MAX:
            more = len(mine) - EVENTS_MAX
            happened(local_event(MORE_EVENTS, count=more, entry=entry.position))

    def given(self, effects: Sequence[Effect], replica: Replica) -> None:
        """Peers get tasks, lose them, or are to seal one."""

        def log(kind: EventKind, job: JobId, **values: EventValue) -> None:
            happened(local_event(kind, job, replica.said_of(job), **values))

        began: dict[tuple[JobId, TaskName, AllocationVersion], list[PeerId]] = {}
        lost: dict[tuple[JobId, TaskName, str], list[PeerId]] = {}
        for effect in effects:
            match effect:
                case StartTask(peer, job, task, version=version):
                    began.setdefault((job, task, version), []).append(peer)
                case StopTask(peer, job, task, why):
                    lost.setdefault((job, task, why), []).append(peer)
                case SealTask(peer, job, task):
                    log(TASK_SEALS, job, task=task, peer=peer)
        for (job, task, why), peers in lost.items():
            log(TASK_STOPPED, job, task=task, peers=_named(peers), why=why)
        for (job, task, version), peers in began.items():
            log(TASK_STARTED, job, task=task, peers=_named(peers), version=version)

    def _is_mine(self, event: JobEvent) -> bool:
        return not event.kind.detail or event.values.get("worker") == self._group


def _named(peers: Sequence[PeerId]) -> str:
    return f"{'peer' if len(peers) == 1 else 'peers'} {some(peers)}"


def is_business_of(me: GroupId, job: JobId, old: Replica, new: Replica) -> bool:
    """Whether a group logs what happens to a job; with an empty id, to workers."""
    before, after = old.run(job), new.run(job)
    if not job or _works(me, old, before) or _works(me, new, after):
        return True
    if any(before.allocation.values()) or any(after.allocation.values()) or not new.groups:
        return False
    return sorted(new.groups)[new.version % len(new.groups)] == me


def _works(me: GroupId, replica: Replica, run: JobRun) -> bool:
    mine = frozenset(replica.groups_index.get(me, ()))
    return any(not mine.isdisjoint(peers) for peers in run.allocation.values())
