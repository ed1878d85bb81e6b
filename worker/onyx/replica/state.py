"""The replica: what every peer knows after the same number of log entries.

An immutable value of persistent maps, so that an entry costs what it changes and not the cluster.
Tuples keep order of joining or submission; sets are maps to None, and nothing unordered is ever
iterated without sorting (a different hash seed would make replicas diverge).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from immutables import Map

from onyx.ids import NO_POSITION, GroupId, JobId, PeerId, Position, Slot, TaskName
from onyx.replica.spec import JobSpec
from onyx.structs import prepared

NOTHING: Map[Any, Any] = Map()


Run = tuple[int, ...]
"""Partition, first and last position of segments that follow each other."""


@prepared
@dataclass(frozen=True, slots=True)
class Partitions:
    """The source partitions of one input task, numbered once for all by `register-partitions`."""

    first: int
    """Number of the first one within the job; the others follow."""
    count: int
    digest: str
    """Content address of the list of their names (JSON array), in the chunk store of the log."""


@dataclass(frozen=True, slots=True)
class Replica:
    """The value that the log folds into. Field names follow the original's replica keys."""

    job_scheduler: str = "balanced"
    version: Position = NO_POSITION
    """Position of the last entry applied."""

    groups: tuple[GroupId, ...] = ()
    groups_index: Map[GroupId, tuple[PeerId, ...]] = NOTHING
    groups_reverse_index: Map[PeerId, GroupId] = NOTHING
    pairs: Map[GroupId, GroupId] = NOTHING
    """The ring: who watches whom."""
    prepared: Map[GroupId, GroupId] = NOTHING
    accepted: Map[GroupId, GroupId] = NOTHING
    aborted: Map[GroupId, None] = NOTHING
    left: Map[GroupId, Position] = NOTHING
    """Groups declared dead, each with the position of the entry: the newest ones, bounded."""
    last_sequence: Map[GroupId, int] = NOTHING
    """Highest writer sequence applied of each live group: a repeat in the log has no effect."""

    peers: tuple[PeerId, ...] = ()
    orphaned_peers: Map[GroupId, tuple[PeerId, ...]] = NOTHING
    peer_state: Map[PeerId, str] = NOTHING
    """`idle` or `active`."""
    peer_sites: Map[PeerId, Map[str, Any]] = NOTHING
    """`address` (host:port of the group's endpoint) and what else the peer announced."""
    peer_tags: Map[PeerId, tuple[str, ...]] = NOTHING

    jobs: tuple[JobId, ...] = ()
    completed_jobs: tuple[JobId, ...] = ()
    killed_jobs: tuple[JobId, ...] = ()
    suspended_jobs: Map[JobId, None] = NOTHING
    """Those of `jobs` that want no peers for now."""
    draining_jobs: Map[JobId, None] = NOTHING
    """Those of `jobs` whose inputs read nothing new any more."""
    upgrades: Map[JobId, JobId] = NOTHING
    """The old job of each job that upgrades one: its state is carried over."""
    specs: Map[JobId, JobSpec] = NOTHING
    """What came with the submission of a job: kept until it is collected, so that its id stays
    taken."""

    allocations: Map[JobId, Map[TaskName, tuple[PeerId, ...]]] = NOTHING
    task_slot_ids: Map[JobId, Map[TaskName, Map[PeerId, Slot]]] = NOTHING
    ackers: Map[JobId, tuple[PeerId, ...]] = NOTHING
    allocation_version: Map[JobId, int] = NOTHING
    """Position of the entry at which the allocation (or the ackers) of the job last changed."""
    ready: Map[PeerId, int] = NOTHING
    """Allocation version for which an allocated peer has signalled that it can receive."""

    partitions: Map[JobId, Map[TaskName, Partitions]] = NOTHING
    """Of jobs that run, and of those that were killed: others may go on where they stopped."""
    exhausted_partitions: Map[JobId, Map[int, None]] = NOTHING
    exhausted_inputs: Map[JobId, Map[TaskName, None]] = NOTHING
    sealed_outputs: Map[JobId, Map[TaskName, None]] = NOTHING
    sealers: Map[JobId, Map[TaskName, PeerId]] = NOTHING
    """For each output task not yet sealed, the peer elected to seal it (all inputs exhausted)."""
    restarts: Map[JobId, Map[TaskName, int]] = NOTHING
    """How often peers of a task have restarted because a lifecycle says so, without having worked
    for long in between."""
    suspects: Map[JobId, Map[TaskName, tuple[Run, ...]]] = NOTHING
    """Segments that were in user code when a process died there, of each task the newest."""
    losses: Map[JobId, Map[str, int]] = NOTHING
    """By segment (`losses.key_of`), or task, how often a process has died over it."""
    loss_reports: Map[JobId, tuple[str, ...]] = NOTHING
    """The newest that were counted."""
    rejected: int = 0
    """Entries that were refused: unknown command, bad arguments, repeats not counted."""

    def tasks_of(self, job: JobId) -> tuple[TaskName, ...]:
        """Tasks of a job, parents before children; none when nobody knows it."""
        spec = self.specs.get(job)
        return () if spec is None else tuple(spec.by_name)

    def digest_of(self, job: JobId) -> str | None:
        """Content address of a job in the chunk store; None when nobody knows it."""
        spec = self.specs.get(job)
        return None if spec is None else spec.digest or None
