"""The replica: what every peer knows after the same number of log entries.

An immutable value of persistent maps, so that an entry costs what it changes and not the cluster.
Tuples keep order of joining or submission; sets are maps to None, and nothing unordered is ever
iterated without sorting (a different hash seed would make replicas diverge).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from immutables import Map

from onyx.ids import NO_POSITION, GroupId, JobId, PeerId, Position, Slot, TaskName


def _map() -> Any:
    return field(default_factory=Map)


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
    groups_index: Map[GroupId, tuple[PeerId, ...]] = _map()
    groups_reverse_index: Map[PeerId, GroupId] = _map()
    pairs: Map[GroupId, GroupId] = _map()
    """The ring: who watches whom."""
    prepared: Map[GroupId, GroupId] = _map()
    accepted: Map[GroupId, GroupId] = _map()
    aborted: Map[GroupId, None] = _map()
    left: Map[GroupId, None] = _map()
    last_sequence: Map[GroupId, int] = _map()
    """Highest writer sequence applied of each live group: a repeat in the log has no effect."""

    peers: tuple[PeerId, ...] = ()
    orphaned_peers: Map[GroupId, tuple[PeerId, ...]] = _map()
    peer_state: Map[PeerId, str] = _map()
    """`idle`, `active` or `backpressure`."""
    peer_sites: Map[PeerId, Map[str, Any]] = _map()
    """`address` (host:port of the group's endpoint) and what else the peer announced."""
    peer_tags: Map[PeerId, tuple[str, ...]] = _map()

    jobs: tuple[JobId, ...] = ()
    completed_jobs: tuple[JobId, ...] = ()
    killed_jobs: tuple[JobId, ...] = ()
    job_digests: Map[JobId, str] = _map()
    """Content address of the job itself, in the chunk store."""
    tasks: Map[JobId, tuple[TaskName, ...]] = _map()
    input_tasks: Map[JobId, tuple[TaskName, ...]] = _map()
    output_tasks: Map[JobId, tuple[TaskName, ...]] = _map()
    exempt_tasks: Map[JobId, tuple[TaskName, ...]] = _map()
    acker_percentage: Map[JobId, int] = _map()
    acker_exclude_inputs: Map[JobId, bool] = _map()
    acker_exclude_outputs: Map[JobId, bool] = _map()
    task_schedulers: Map[JobId, str] = _map()
    percentages: Map[JobId, int] = _map()
    task_percentages: Map[JobId, Map[TaskName, int]] = _map()
    saturation: Map[JobId, float] = _map()
    """Most peers of a job; may be infinite."""
    task_saturation: Map[JobId, Map[TaskName, float]] = _map()
    min_required_peers: Map[JobId, Map[TaskName, int]] = _map()
    flux_policies: Map[JobId, Map[TaskName, str]] = _map()
    required_tags: Map[JobId, Map[TaskName, tuple[str, ...]]] = _map()

    allocations: Map[JobId, Map[TaskName, tuple[PeerId, ...]]] = _map()
    task_slot_ids: Map[JobId, Map[TaskName, Map[PeerId, Slot]]] = _map()
    ackers: Map[JobId, tuple[PeerId, ...]] = _map()
    allocation_version: Map[JobId, int] = _map()
    """Position of the entry at which the allocation (or the ackers) of the job last changed."""
    ready: Map[PeerId, int] = _map()
    """Allocation version for which an allocated peer has signalled that it can receive."""

    partitions: Map[JobId, Map[TaskName, Partitions]] = _map()
    exhausted_partitions: Map[JobId, Map[int, None]] = _map()
    exhausted_inputs: Map[JobId, Map[TaskName, None]] = _map()
    sealed_outputs: Map[JobId, Map[TaskName, None]] = _map()
    sealers: Map[JobId, Map[TaskName, PeerId]] = _map()
    """For each output task not yet sealed, the peer elected to seal it (all inputs exhausted)."""
    rejected: int = 0
    """Entries that were refused: unknown command, bad arguments, repeats not counted."""
