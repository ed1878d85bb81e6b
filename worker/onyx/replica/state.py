"""The replica: what every peer knows after the same number of log entries.

An immutable value of persistent maps, so that an entry costs what it changes and not the cluster.
Tuples keep order of joining or submission; sets are maps to None, and nothing unordered is ever
iterated without sorting (a different hash seed would make replicas diverge).

All about one job is one record, whose running half goes by one assignment when the job ends. A map
by job for each field was rejected: each end had to name them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec
from immutables import Map
from msgspec.structs import replace

from onyx.base.structs import prepared
from onyx.ids import NO_POSITION, GroupId, JobId, PeerId, Position, Slot, TaskName
from onyx.replica.spec import JobSpec

NOTHING: Map[Any, Any] = Map()


SuspectRun = tuple[int, ...]
"""Partition, first and last position of segments that follow each other; of suspects also the
deaths of processes that had them and others in user code."""


@prepared
class Partitions(msgspec.Struct, frozen=True):
    """The source partitions of one input task, numbered once for all by `register-partitions`."""

    first: int
    """Number of the first one within the job; the others follow."""
    count: int
    digest: str
    """Content address of the list of their names (JSON array), in the chunk store of the log."""


@prepared
class Loaded(msgspec.Struct, frozen=True):
    """Where the record of a job comes from that has never run here: a savepoint."""

    place: str
    origin: JobId
    """The id of the saved job, under which it has written."""
    publishes: bool = False
    """Whether what its outputs have committed may lie there unpublished, because the saved job had
    no peers."""
    whole: bool = False
    """Whether all that lies beside the log is there."""


class JobRun(msgspec.Struct, frozen=True, dict=True):
    """The half of a job's record that the job has only while it runs. Scheduling keeps with it what
    it has worked out (`scheduling.demand`)."""

    suspended: bool = False
    """The job wants no peers for now."""
    draining: bool = False
    """Its inputs read nothing new any more."""
    paused: Position = NO_POSITION
    """The entry since which its inputs read nothing new, until it is resumed; `NO_POSITION` when
    they read."""
    rested: Map[PeerId, None] = NOTHING
    """Peers of sources that have signalled, in this pause and this allocation version, that nothing
    of theirs is in flight."""
    options: Map[TaskName, Map[str, int]] = NOTHING
    """Values that were set while it runs, by task and key; 0 for a key's default."""
    declared: str = ""
    """The fingerprint of the manifest whose values they are, instead of those of the submission."""
    allocation: Map[TaskName, tuple[PeerId, ...]] = NOTHING
    """Peers of each task; empty while the job waits for peers."""
    slots: Map[TaskName, Map[PeerId, Slot]] = NOTHING
    ackers: tuple[PeerId, ...] = ()
    allocation_version: int = NO_POSITION
    """Position of the entry at which the allocation or the ackers last changed; `NO_POSITION`
    before the first allocation."""
    ready: Map[PeerId, None] = NOTHING
    """Peers that have signalled that they can receive in this allocation version."""
    displaced: bool = False
    """It has lost its peers by an entry with which no worker left: others have them."""
    exhausted_partitions: Map[int, None] = NOTHING
    exhausted_inputs: Map[TaskName, None] = NOTHING
    sealed_outputs: Map[TaskName, None] = NOTHING
    sealers: Map[TaskName, PeerId] = NOTHING
    """For each output task not yet sealed, the peer elected to seal it (all inputs exhausted)."""
    restarts: Map[TaskName, int] = NOTHING
    """How often peers of a task have restarted because a lifecycle says so, without having worked
    for long in between."""
    failing: Map[TaskName, Map[PeerId, None]] = NOTHING
    """Peers of which all segments that they have had have failed, by task."""
    suspects: Map[TaskName, tuple[SuspectRun, ...]] = NOTHING
    """Segments that were in user code when a process died there, of each task the newest."""
    losses: Map[str, int] = NOTHING
    """By segment (`losses.key_of`), or task, how often a process has died over it alone."""
    loss_reports: tuple[str, ...] = ()
    """The newest that were counted."""

    @property
    def is_paused(self) -> bool:
        """Whether its inputs read nothing new until it is resumed."""
        return self.paused != NO_POSITION

    def has_rested(self, task: TaskName) -> bool:
        """Whether all peers of a source have signalled that they are at rest."""
        peers = self.allocation.get(task, ())
        return bool(peers) and all(peer in self.rested for peer in peers)

    def suspects_of(self, task: TaskName) -> tuple[SuspectRun, ...]:
        """Runs of positions of which a task works on each by itself (`ReportLoss`)."""
        return self.suspects.get(task, ()) if self.suspects else ()

    @property
    def is_ready(self) -> bool:
        """Whether every peer of the job has signalled ready for its allocation version."""
        return bool(self.allocation) and sum(map(len, self.allocation.values())) == len(self.ready)


_NO_RUN = JobRun()


class JobRecord(msgspec.Struct, frozen=True):
    """All that the replica holds of one job."""

    spec: JobSpec
    """What came with the submission."""
    upgrades: JobId | None = None
    """The old job whose state this one carries over. None also when that job was complete."""
    partitions: Map[TaskName, Partitions] = NOTHING
    """The partitions of jobs that run, and of those that were killed: others may go on where they
    stopped."""
    run: JobRun | None = None
    """None once the job has ended."""
    parts: Map[TaskName, tuple[str, ...]] = NOTHING
    """The names of the last part of each writer, of outputs that were sealed: without them nobody
    who follows an output could tell that its last parts are gone."""
    ready_version: int = NO_POSITION
    """The newest allocation version in which all peers were ready: whatever the job has kept or
    promised, it did so in that version or before."""
    ended: Position = NO_POSITION
    """The entry that ended it."""
    loaded: Loaded | None = None
    """None: it was submitted here."""


class Replica(msgspec.Struct, frozen=True, dict=True):
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
    """The jobs that run, in the order of submission, which scheduling follows."""
    completed_jobs: tuple[JobId, ...] = ()
    killed_jobs: tuple[JobId, ...] = ()
    """Also ids that were killed before anybody submitted them, which have no record."""
    completed_before: Map[JobId, Position] = NOTHING
    """Jobs that had completed and were collected, each with the entry that collected it: the newest
    ones. Nothing else is known of them, and their ids stay taken."""
    killed_before: Map[JobId, Position] = NOTHING
    """The ends of jobs that were killed."""
    records: Map[JobId, JobRecord] = NOTHING
    """The record of each job from its submission until it is collected."""
    rejected: int = 0
    """Entries that were refused: unknown command, bad arguments, repeats not counted."""

    @cached_property
    def peer_kinds(self) -> Mapping[tuple[str, ...], int]:
        """How many members there are with each set of tags."""
        tags = self.peer_tags
        if not tags:
            return {(): len(self.peers)}
        return dict(Counter(tags.get(peer, ()) for peer in self.peers))

    @cached_property
    def peers_free(self) -> int:
        """How many members work on no task."""
        allocations = (self.run(job).allocation for job in self.jobs)
        busy = {peer for each in allocations for peers in each.values() for peer in peers}
        return sum(peer not in busy for peer in self.peers)

    def spec(self, job: JobId) -> JobSpec:
        """What came with the submission of a job.

        Raises:
            KeyError: nobody knows the job.
        """
        return self.records[job].spec

    def run(self, job: JobId) -> JobRun:
        """The running half of a job; an empty one when the job does not run."""
        record = self.records.get(job)
        return _NO_RUN if record is None or record.run is None else record.run

    def with_run(self, job: JobId, run: JobRun) -> Replica:
        """The replica with another running half of a job that has a record."""
        return replace(self, records=self.records.set(job, replace(self.records[job], run=run)))

    def ready_version(self, job: JobId) -> int:
        """The newest allocation version in which a job was ready; `NO_POSITION`: in none, or nobody
        knows the job."""
        record = self.records.get(job)
        return NO_POSITION if record is None else record.ready_version

    def partitions(self, job: JobId) -> Map[TaskName, Partitions]:
        """The registered partitions of a job's sources; none when nobody knows the job."""
        record = self.records.get(job)
        return NOTHING if record is None else record.partitions

    def upgrades(self, job: JobId) -> JobId | None:
        """The old job whose state a job carries over; None when it upgrades none."""
        record = self.records.get(job)
        return None if record is None else record.upgrades

    def tasks_of(self, job: JobId) -> tuple[TaskName, ...]:
        """Tasks of a job, parents before children; none when nobody knows it."""
        record = self.records.get(job)
        return () if record is None else tuple(record.spec.by_name)

    def loaded(self, job: JobId) -> Loaded | None:
        """Where the record of a job comes from that was loaded; None: it was submitted here, or
        nobody knows it."""
        record = self.records.get(job)
        return None if record is None else record.loaded

    def said_of(self, job: JobId) -> Mapping[str, str | int | float | bool]:
        """Name and metadata of a job, as events and lines of logs have them; none when nobody knows
        it."""
        record = self.records.get(job)
        return {} if record is None else record.spec.said

    def digest_of(self, job: JobId) -> str | None:
        """Content address of a job in the chunk store; None when nobody knows it."""
        record = self.records.get(job)
        return None if record is None else record.spec.digest or None
