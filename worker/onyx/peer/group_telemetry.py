"""What one incarnation tells telemetry about itself: its peers, its jobs, its traffic.

Read from the replica and the transport's totals and told as it changes, so nothing that does the
work has to count for a scrape. Used by the group's thread, except `job_started`.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter

from onyx.ids import GroupId, JobId
from onyx.replica import machine
from onyx.replica.entry import Entry
from onyx.replica.state import Replica
from onyx.telemetry.catalog import Direction, PeerState
from onyx.telemetry.interface import GroupMetrics
from onyx.transport.counters import Counters

logger = logging.getLogger(__name__)
REFUSAL_CHARACTERS_MAX = 300


class GroupTelemetry:
    """Of one incarnation; close it with it."""

    def __init__(self, group: GroupId, metrics: GroupMetrics) -> None:
        self._group = group
        self._metrics = metrics
        self._lock = threading.Lock()
        self._jobs: dict[JobId, tuple[str, str]] = {}
        self._seen: tuple[object, ...] = ()
        self._told = Counters()
        self._rejected = 0

    def job_started(self, job: JobId, name: str, guarantee: str) -> None:
        """A peer of this group works on the job; from any thread."""
        with self._lock:
            if job not in self._jobs:
                self._jobs[job] = (name, guarantee)
                self._metrics.job_started(name, job, guarantee)

    def observe(self, replica: Replica, leaving: bool = False) -> None:
        """The replica may have changed."""
        seen = (replica.groups_index, replica.allocations, replica.ready, leaving)
        if len(seen) == len(self._seen) and all(map(_is, seen, self._seen)):
            return
        self._seen = seen
        counts = Counter(_states(replica, self._group, leaving))
        for state in PeerState:
            self._metrics.peers(state, counts[state])
        self._end_jobs(replica)

    def applied(self, entry: Entry, replica: Replica, seconds: float) -> None:
        """The replica after an entry, which may have been rejected; it took so long."""
        self._metrics.entry_applied(entry.command.fn, entry.position, seconds)
        before, self._rejected = self._rejected, replica.rejected
        if replica.rejected != before and (refusal := machine.refusal(entry.command)):
            self._metrics.entry_rejected()
            logger.warning(
                "entry %d of the log, %s, is rejected by every worker: %s",
                entry.position,
                ascii(entry.command.fn),
                ascii(refusal)[:REFUSAL_CHARACTERS_MAX],
            )

    def traffic(self, now: Counters) -> None:
        """The totals of the transport are these."""
        told, self._told = self._told, now
        self._metrics.stream(
            Direction.OUT, now.sent_frames - told.sent_frames, now.sent_bytes - told.sent_bytes
        )
        self._metrics.stream(
            Direction.IN,
            now.received_frames - told.received_frames,
            now.received_bytes - told.received_bytes,
        )
        self._metrics.reconnected(now.reconnects - told.reconnects)
        for reason, calls in (now.refused_calls - told.refused_calls).items():
            self._metrics.refused(reason, calls)

    def close(self) -> None:
        """The incarnation has ended: it has no peers and no jobs."""
        self.observe(Replica())

    def _end_jobs(self, replica: Replica) -> None:
        mine = frozenset(replica.groups_index.get(self._group, ()))
        with self._lock:
            for job in tuple(self._jobs):
                tasks = replica.allocations.get(job)
                if tasks is None or not any(mine.intersection(peers) for peers in tasks.values()):
                    name, guarantee = self._jobs.pop(job)
                    self._metrics.job_ended(name, job, guarantee)


def _states(replica: Replica, group: GroupId, leaving: bool) -> list[PeerState]:
    mine = replica.groups_index.get(group, ())
    if leaving:
        return [PeerState.LEAVING] * len(mine)
    versions = {
        peer: replica.allocation_version.get(job)
        for job in replica.jobs
        for peers in replica.allocations.get(job, {}).values()
        for peer in peers
    }
    states = []
    for peer in mine:
        if peer not in versions:
            states.append(PeerState.IDLE)
        elif replica.ready.get(peer) == versions[peer]:
            states.append(PeerState.ALLOCATED)
        else:
            states.append(PeerState.WARMING)
    return states


def _is(new: object, old: object) -> bool:
    return new is old
