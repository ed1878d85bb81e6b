"""What one group has to do in the world, as a difference of two replicas: the effects.

Level-based: what a group must watch and run is read from each replica alone, and the effects are
the difference. So a jump over many entries (a new origin) needs no code of its own. Only what an
entry asks for once (a probe, a back-off) comes from its command (`Command.effects`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from onyx.ids import AllocationVersion, GroupId, JobId, PeerId, Slot, TaskName
from onyx.replica import members
from onyx.replica.derived import changed_runs
from onyx.replica.effects import (
    Effect,
    JobReady,
    RemoveState,
    RestartGroup,
    RewireTask,
    SealTask,
    StartTask,
    StopTask,
    UnwatchPulse,
    WatchPulse,
)
from onyx.replica.state import NOTHING, JobRun, Replica


class PeerWork(NamedTuple):
    """What one of my peers does."""

    job: JobId
    task: TaskName
    slot: Slot
    version: AllocationVersion


def changes(old: Replica, new: Replica, me: GroupId) -> Iterator[Effect]:
    """Everything that `me` must do because of what has changed, in order."""
    yield from _watches(old, new, me)
    yield from _tasks(old, new, me)
    yield from _readiness(old, new, me)
    yield from _removals(old, new, me)
    if me in new.left and me not in old.left:
        yield RestartGroup()


def _watches(old: Replica, new: Replica, me: GroupId) -> Iterator[Effect]:
    relations = (old.pairs, old.prepared, old.accepted), (new.pairs, new.prepared, new.accepted)
    if all(before is after for before, after in zip(*relations, strict=True)):
        return
    before, after = members.watched_by(old, me), members.watched_by(new, me)
    yield from (UnwatchPulse(group) for group in before if group not in after)
    yield from (WatchPulse(group) for group in after if group not in before)


def _tasks(old: Replica, new: Replica, me: GroupId) -> Iterator[Effect]:
    jobs = changed_runs(old, new)
    before, after = _work(old, jobs, me), _work(new, jobs, me)
    stays = {peer for peer in before.keys() & after.keys() if _same(before[peer], after[peer])}
    for peer in sorted(before.keys() - stays):
        yield StopTask(
            peer, before[peer].job, before[peer].task, _reason(new, peer, before[peer].job)
        )
    for peer in sorted(after.keys() - stays):
        yield StartTask(peer, *after[peer])
    for peer in sorted(stays):
        if before[peer].version != after[peer].version:
            yield RewireTask(peer, *after[peer])


def _same(one: PeerWork, other: PeerWork) -> bool:
    return (one.job, one.task, one.slot) == (other.job, other.task, other.slot)


def _reason(new: Replica, peer: PeerId, job: JobId) -> str:
    if job in new.killed_jobs:
        return "job-killed"
    if job in new.completed_jobs:
        return "job-completed"
    if new.run(job).suspended:
        return "job-suspended"
    return "peer-reallocated" if peer in new.peers else "peer-left"


def _work(replica: Replica, jobs: Iterable[JobId], me: GroupId) -> dict[PeerId, PeerWork]:
    """What my peers do for some jobs."""
    members = frozenset(replica.groups_index.get(me, ()))
    if not members:
        return {}
    found: dict[PeerId, PeerWork] = {}
    for job in jobs:
        run = replica.run(job)
        version = AllocationVersion(run.allocation_version)
        for task, peers in run.allocation.items():
            for peer in members.intersection(peers):
                slot = run.slots.get(task, NOTHING).get(peer, Slot(0))
                found[peer] = PeerWork(job, task, slot, version)
    return found


def _readiness(old: Replica, new: Replica, me: GroupId) -> Iterator[Effect]:
    """Jobs of mine that can run now; sealing begins only then, for its channels must stand."""
    for job in changed_runs(old, new):
        run, before = new.run(job), old.run(job)
        version = run.allocation_version
        if not run.is_ready or not _has_peer(new, run, me):
            continue
        was_ready = before.allocation_version == version and before.is_ready
        if not was_ready:
            yield JobReady(job, AllocationVersion(version))
        sealed_before = before.sealers if was_ready else NOTHING
        for task, peer in sorted(run.sealers.items()):
            if new.groups_reverse_index.get(peer) == me and sealed_before.get(task) != peer:
                yield SealTask(peer, job, task)


def _removals(old: Replica, new: Replica, me: GroupId) -> Iterator[Effect]:
    """One group removes the state logs of a job. If it dies before it has done so, the collector
    finds what is left (`onyx.history`)."""
    # A record goes only with the id of its job in one of these.
    if (
        new.jobs is old.jobs
        and new.completed_jobs is old.completed_jobs
        and new.killed_jobs is old.killed_jobs
    ):
        return
    if not new.groups or sorted(new.groups)[new.version % len(new.groups)] != me:
        return
    completed = {
        job
        for job in set(new.completed_jobs).difference(old.completed_jobs)
        if not old.spec(job).followed
    }
    over = (job for job in old.records if job in completed or job not in new.records)
    yield from (RemoveState(job) for job in sorted(over) if old.spec(job).stateful)


def _has_peer(replica: Replica, run: JobRun, me: GroupId) -> bool:
    mine = frozenset(replica.groups_index.get(me, ()))
    return any(not mine.isdisjoint(peers) for peers in run.allocation.values())
