"""The metrics of one incarnation: its peers, its jobs, its part of the log, its traffic.

Derived from the replica and from the totals of the transport when they change, so nothing that does
the work has to count for a scrape. Used by the group's thread, except for what says otherwise.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter

from onyx.ids import GroupId, JobId, TaskName
from onyx.model.job import Job
from onyx.replica import canonical
from onyx.replica.command import Entry, Undecodable
from onyx.replica.state import Replica
from onyx.reports.measures import ZooKeeperMeasures
from onyx.telemetry.catalog import (
    CALLS_REFUSED,
    JOB_INFO,
    LOG_APPLIED,
    LOG_APPLY_SECONDS,
    LOG_ENTRIES,
    LOG_REJECTED,
    PEERS,
    REPLICA_DIGEST,
    REPLICA_VERSION,
    STREAM_BYTES,
    STREAM_FRAMES,
    STREAM_RECONNECTS,
    ZOOKEEPER_BYTES,
    ZOOKEEPER_REQUESTS,
    ZOOKEEPER_SECONDS,
    ZOOKEEPER_WATCHES,
)
from onyx.telemetry.interface import GroupMetrics, TalliedTask, TaskMetrics
from onyx.telemetry.labels import Direction, PeerState
from onyx.telemetry.recorder import Recorder
from onyx.transport.counters import Counters

logger = logging.getLogger(__name__)
REFUSAL_CHARACTERS_MAX = 300
DIGEST_EVERY = 1_000
"""Entries from one digest of the replica to the next: a series each, and some milliseconds."""


class GroupTelemetry:
    """The telemetry of one incarnation; close it with it."""

    def __init__(
        self, group: GroupId, metrics: GroupMetrics, recorder: Recorder | None = None
    ) -> None:
        """`recorder` keeps the counts of tasks when this process dies."""
        self._group = group
        self._metrics = metrics
        self._recorder = recorder
        self._lock = threading.Lock()
        self._jobs: dict[JobId, tuple[str, str]] = {}
        self._seen: tuple[object, ...] = ()
        self._reported = Counters()
        self._zookeeper = ZooKeeperMeasures()

    def of_task(self, job_id: JobId, job: Job, task: TaskName) -> TaskMetrics:
        """Where a peer that begins to work on a task reports what it does; from any thread."""
        self.job_started(job_id, job.name, job.guarantee)
        metrics, recorder = self._metrics.task(job.name, task), self._recorder
        if metrics.tally is None:
            metrics = TalliedTask(metrics)
        return metrics if recorder is None else recorder.counts.metrics(job_id, task, metrics)

    def job_started(self, job: JobId, name: str, guarantee: str) -> None:
        """A peer of this group works on the job; from any thread."""
        with self._lock:
            if job not in self._jobs:
                self._jobs[job] = (name, guarantee)
                self._metrics.set(JOB_INFO, 1, name, job, guarantee)

    def observe(self, replica: Replica, leaving: bool = False) -> None:
        """The replica may have changed: count peers by state, and end the jobs that left."""
        seen = (replica.groups_index, replica.records, leaving)
        if len(seen) == len(self._seen) and all(map(_is, seen, self._seen)):
            return
        self._seen = seen
        counts = Counter(_states(replica, self._group, leaving))
        for state in PeerState:
            self._metrics.set(PEERS, counts[state], state)
        self._end_jobs(replica)

    def applied(self, entry: Entry, replica: Replica, seconds: float) -> None:
        """The replica after an entry, which may have been rejected; it took so long."""
        command, metrics = entry.command, self._metrics
        fn = command.NAME
        metrics.add(LOG_ENTRIES, 1, fn)
        metrics.observe(LOG_APPLY_SECONDS, seconds, fn)
        metrics.set(LOG_APPLIED, entry.position)
        metrics.set(REPLICA_VERSION, entry.position)
        if entry.position % DIGEST_EVERY == 0:
            digest = int(canonical.digest(replica)[:12], 16)
            metrics.replace(REPLICA_DIGEST, {(str(entry.position),): digest})
        if isinstance(command, Undecodable):
            metrics.add(LOG_REJECTED)
            logger.warning(
                "entry %d of the log, %s, is rejected by every worker: %s",
                entry.position,
                ascii(command.fn),
                ascii(command.reason)[:REFUSAL_CHARACTERS_MAX],
            )

    def report_traffic(self, now: Counters) -> None:
        """Add what has been counted since the last call; `now` are the transport's totals."""
        before, self._reported = self._reported, now
        metrics = self._metrics
        metrics.add(STREAM_FRAMES, now.sent_frames - before.sent_frames, Direction.OUT)
        metrics.add(STREAM_BYTES, now.sent_bytes - before.sent_bytes, Direction.OUT)
        metrics.add(STREAM_FRAMES, now.received_frames - before.received_frames, Direction.IN)
        metrics.add(STREAM_BYTES, now.received_bytes - before.received_bytes, Direction.IN)
        metrics.add(STREAM_RECONNECTS, now.reconnects - before.reconnects)
        for reason, calls in (now.refused_calls - before.refused_calls).items():
            metrics.add(CALLS_REFUSED, calls, reason)

    def report_zookeeper(self, now: ZooKeeperMeasures) -> None:
        """Add what has passed since the last call; `now` are the totals of the session."""
        before, self._zookeeper = self._zookeeper, now
        metrics, passed = self._metrics, now.requests.since(before.requests)
        metrics.add(ZOOKEEPER_REQUESTS, max(0, passed.count))
        metrics.add(ZOOKEEPER_SECONDS, max(0.0, passed.total_s))
        metrics.add(ZOOKEEPER_BYTES, now.sent_bytes - before.sent_bytes, Direction.OUT)
        metrics.add(ZOOKEEPER_BYTES, now.received_bytes - before.received_bytes, Direction.IN)
        metrics.set(ZOOKEEPER_WATCHES, now.watches)

    def close(self) -> None:
        """The incarnation has ended: it has no peers and no jobs, and no replica."""
        self._metrics.replace(REPLICA_DIGEST, {})
        self.observe(Replica())

    def _end_jobs(self, replica: Replica) -> None:
        mine = frozenset(replica.groups_index.get(self._group, ()))
        with self._lock:
            for job in tuple(self._jobs):
                tasks = replica.run(job).allocation
                if not any(mine.intersection(peers) for peers in tasks.values()):
                    name, guarantee = self._jobs.pop(job)
                    self._metrics.remove(JOB_INFO, name, job, guarantee)


def _states(replica: Replica, group: GroupId, leaving: bool) -> list[PeerState]:
    mine = replica.groups_index.get(group, ())
    if leaving:
        return [PeerState.LEAVING] * len(mine)
    found = dict.fromkeys(mine, PeerState.IDLE)
    for job in replica.jobs:
        run = replica.run(job)
        for peers in run.allocation.values():
            for peer in found.keys() & peers:
                found[peer] = PeerState.ALLOCATED if peer in run.ready else PeerState.WARMING
    return list(found.values())


def _is(new: object, old: object) -> bool:
    return new is old
