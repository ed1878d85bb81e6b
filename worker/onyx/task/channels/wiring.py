"""Who is connected to whom within one allocation version of a job, seen from one peer. Pure.

Computed from the replica by every peer for itself, so all peers of a version agree without asking.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onyx.ids import AllocationVersion, GroupId, JobId, PeerId, Slot, TaskName
from onyx.model.job import Job
from onyx.model.workflow import edge_number, laps_to, parents, receivers
from onyx.replica.scheduling.colocation import SCHEDULER
from onyx.replica.scheduling.dealing import group_of
from onyx.replica.state import Replica


class Site(msgspec.Struct, frozen=True):
    """A peer and the group (process) that it lives in."""

    peer: PeerId
    group: GroupId


class ChildTask(msgspec.Struct, frozen=True):
    """A task downstream: its peers in the order of their slots."""

    task: TaskName
    edge: int
    """Number of the edge to it, part of the lineage of what is sent there."""
    sites: tuple[Site, ...]
    by_id: bool = False
    """Segments are dealt by their ids, so that a repeat comes to the same peer."""
    laps: int | None = None
    """What going there adds to the laps of a segment: 0 inside a loop, 1 back to where it begins;
    None: outside."""

    @property
    def back(self) -> bool:
        """Whether the edge leads back. What goes there is of the same trees, and nothing else:
        neither ends of input nor event time."""
        return self.laps == 1


class Wiring(msgspec.Struct, frozen=True):
    """The neighbourhood of one peer in one allocation version."""

    job: JobId
    version: AllocationVersion
    me: Site
    task: TaskName
    slot: Slot
    rank: int
    """Number of this peer among the peers of its task, by slot: which partitions it owns."""
    task_peers: int
    """How many peers the task has."""
    children: tuple[ChildTask, ...]
    upstream: Mapping[PeerId, TaskName]
    """All peers of all parent tasks, each with its task. Not those that send back."""
    ackers: tuple[Site, ...]
    sources: tuple[tuple[TaskName, tuple[Site, ...]], ...]
    """Peers of each input and windowed task by slot: the owners of partitions, to whom completions
    go."""
    senders_back: frozenset[PeerId]
    """Peers that send back to this one."""
    loops: bool
    """Whether the job has loops."""
    prefers_near: bool
    """Whether what any peer may have stays in this process where it can."""
    groups: tuple[GroupId, ...]
    """The groups that were there when this version began."""


def sites_of(replica: Replica, job: JobId, task: TaskName) -> tuple[Site, ...]:
    """The peers of a task that has an allocation, in the order of their slots."""
    run = replica.run(job)
    ordered = sorted(run.allocation[task], key=lambda peer: run.slots[task][peer])
    return tuple(Site(peer, replica.groups_reverse_index[peer]) for peer in ordered)


def sources_of(replica: Replica, job: JobId) -> tuple[tuple[TaskName, tuple[Site, ...]], ...]:
    """The tasks of a job that own partitions, each with its peers."""
    return tuple((task, sites_of(replica, job, task)) for task in replica.spec(job).sources)


def wire(replica: Replica, job_id: JobId, job: Job, peer: PeerId, task: TaskName) -> Wiring:
    """The wiring of a peer that the replica has allocated to `task` of the job."""
    run = replica.run(job_id)
    idle = _idle(replica, job_id, job)

    def linked(to: str, source: PeerId, target: PeerId) -> bool:
        works = source not in idle and target not in idle
        return works and _linked(replica, job, to, source, target)

    def child(name: str) -> ChildTask:
        sites = sites_of(replica, job_id, TaskName(name))
        return ChildTask(
            TaskName(name),
            edge_number(job, task, name),
            tuple(site for site in sites if linked(name, peer, site.peer)),
            commits(job, name) or _split_by_id(job, name),
            laps_to(job, task, name),
        )

    mine = sites_of(replica, job_id, task)
    me = Site(peer, replica.groups_reverse_index[peer])
    return Wiring(
        job=job_id,
        version=AllocationVersion(run.allocation_version),
        me=me,
        task=task,
        slot=run.slots[task][peer],
        rank=mine.index(me),
        task_peers=len(mine),
        children=tuple(child(name) for name in receivers(job, task)),
        upstream={
            each: TaskName(name)
            for name in parents(job.workflow).get(task, ())
            for each in run.allocation[TaskName(name)]
            if linked(task, each, peer)
        },
        ackers=tuple(Site(each, replica.groups_reverse_index[each]) for each in run.ackers),
        sources=sources_of(replica, job_id),
        senders_back=frozenset(
            each
            for entry in job.catalog
            if entry.loop_to == task
            for each in run.allocation[TaskName(entry.name)]
        ),
        loops=any(entry.loop_to is not None for entry in job.catalog),
        prefers_near=job.local_only is not False,
        groups=tuple(replica.groups),
    )


def commits(job: Job, task: str) -> bool:
    """Whether segments for an output are dealt by their ids, so that it may write exactly once."""
    entry = job.entry(task)
    writes = entry.type == "output" or entry.stage is not None
    windowed = any(window.task == task for window in job.windows)
    return writes and job.guarantee == "exactly-once" and not windowed


def _split_by_id(job: Job, task: str) -> bool:
    """Whether a task without groups has a state that is split: what it has applied is known to the
    peer that has the shard of a segment's id."""
    return job.entry(task).processor is not None and not job.entry(task).is_grouped


def has_one_owner(job: Job, task: str) -> bool:
    """Whether the task has a state that is not split: windows without groups."""
    return not job.entry(task).is_grouped and any(window.task == task for window in job.windows)


def _idle(replica: Replica, job_id: JobId, job: Job) -> frozenset[PeerId]:
    """Peers with nothing to do, because another one owns the whole state of their task."""
    return frozenset(
        site.peer
        for task in {window.task for window in job.windows}
        if has_one_owner(job, task)
        for site in sites_of(replica, job_id, TaskName(task))[1:]
    )


def _linked(replica: Replica, job: Job, task: str, source: PeerId, target: PeerId) -> bool:
    """Whether `source` sends to `target`, who is on `task`: in a colocated job only in the same
    process, except where groups or the owners of a state decide, or `localOnly` is off."""
    grouped = job.entry(task).is_grouped
    owned = grouped or has_one_owner(job, task) or _split_by_id(job, task)
    if job.task_scheduler != SCHEDULER or job.local_only is False or owned:
        return True
    return group_of(replica, source) == group_of(replica, target)
