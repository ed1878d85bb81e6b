"""What follows from any command: places, slots, allocation versions, readiness, sealers.

Derived by comparing the replica before and after, not by each command, and only for what changed:
persistent maps that nobody touched are the same object.
"""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from onyx.ids import JobId, PeerId, Position, Slot, TaskName
from onyx.replica import jobs
from onyx.replica.scheduling.ackers import choose_ackers
from onyx.replica.scheduling.allocation import reconfigure
from onyx.replica.state import NOTHING, Replica

Place = tuple[JobId, TaskName]
Slots = Map[TaskName, Map[PeerId, Slot]]


def settle(old: Replica, new: Replica, position: Position) -> Replica:
    """The new replica with everything that follows from its difference to the old one."""
    if new is old:
        return new
    if (
        new.peers != old.peers
        or new.jobs != old.jobs
        or new.suspended_jobs is not old.suspended_jobs
    ):
        new = _replace_lost_ackers(reconfigure(new))
    changed = _changed_jobs(old, new)
    if changed:
        new = _follow(old, new, changed, position)
    if (
        changed
        or new.exhausted_inputs is not old.exhausted_inputs
        or new.sealed_outputs is not old.sealed_outputs
    ):
        new = _elect_sealers(new, position)
    return new


def _replace_lost_ackers(replica: Replica) -> Replica:
    """Ackers that are not on their job any more are replaced, and a job without peers has none."""
    ackers = replica.ackers
    for job in sorted(ackers):
        allocation = replica.allocations.get(job, NOTHING)
        there = {peer for peers in allocation.values() for peer in peers}
        if not ackers[job] or not there.issuperset(ackers[job]):
            chosen = choose_ackers(replica, job, allocation)
            ackers = ackers.set(job, chosen) if chosen else ackers.delete(job)
    return replica if ackers is replica.ackers else replace(replica, ackers=ackers)


def _changed_jobs(old: Replica, new: Replica) -> list[JobId]:
    if new.allocations is old.allocations and new.ackers is old.ackers:
        return []
    candidates = {*old.allocations, *new.allocations, *old.ackers, *new.ackers}
    return sorted(
        job
        for job in candidates
        if old.allocations.get(job) != new.allocations.get(job)
        or old.ackers.get(job) != new.ackers.get(job)
    )


def _follow(old: Replica, new: Replica, changed: list[JobId], position: Position) -> Replica:
    slots, versions = new.task_slot_ids, new.allocation_version
    # A peer is ready for one allocation version only. The version is the position of this entry, so
    # no signal for it can have been written before, and all of older versions are void.
    for job in changed:
        if job in new.jobs:
            versions = versions.set(job, position)
        if job in new.allocations:
            slots = slots.set(job, _slots(new.allocations[job], slots.get(job, Map())))
        elif job in slots:
            slots = slots.delete(job)
    before, after = _places(old, changed), _places(new, changed)
    state, ready = new.peer_state, new.ready
    for peer in sorted({*before, *after}):
        if before.get(peer) == after.get(peer):
            continue
        if peer in new.groups_reverse_index and state.get(peer) != "idle":
            state = state.set(peer, "idle")
        if peer in ready:
            ready = ready.delete(peer)
    return replace(
        new, task_slot_ids=slots, allocation_version=versions, peer_state=state, ready=ready
    )


def _places(replica: Replica, changed: list[JobId]) -> dict[PeerId, Place]:
    return {
        peer: (job, task)
        for job in changed
        for task, peers in replica.allocations.get(job, Map()).items()
        for peer in peers
    }


def _slots(allocation: Map[TaskName, tuple[PeerId, ...]], slots: Slots) -> Slots:
    """Slots are kept by those who stay; newcomers take the smallest free numbers."""
    found: dict[TaskName, Map[PeerId, Slot]] = {}
    for task, peers in allocation.items():
        before = slots.get(task, Map())
        kept = {peer: before[peer] for peer in peers if peer in before}
        taken, number = set(kept.values()), 0
        for peer in peers:
            if peer not in kept:
                while number in taken:
                    number += 1
                kept[peer] = Slot(number)
                taken.add(Slot(number))
        found[task] = before if kept == before else Map(kept)
    return Map(found)


def _elect_sealers(replica: Replica, position: Position) -> Replica:
    """One peer of each output task that is not sealed, once all sources of the job are exhausted.

    The elected one stays elected while it is on the task.
    """
    sealers = Map(
        (job, elected)
        for job in sorted(replica.exhausted_inputs)
        if (elected := _sealers_of(replica, job, position))
    )
    return replica if sealers == replica.sealers else replace(replica, sealers=sealers)


def _sealers_of(replica: Replica, job: JobId, position: Position) -> Map[TaskName, PeerId]:
    if not jobs.all_exhausted(replica, job):
        return Map()
    sealed = replica.sealed_outputs.get(job, Map())
    before = replica.sealers.get(job, Map())
    elected: dict[TaskName, PeerId] = {}
    for task in replica.specs[job].outputs:
        peers = sorted(replica.allocations.get(job, Map()).get(task, ()))
        if peers and task not in sealed:
            present = before.get(task)
            elected[task] = present if present in peers else elected_sealer(peers, position)
    return Map(elected)


def elected_sealer(peers: list[PeerId], position: Position) -> PeerId:
    """By position, so that everybody elects the same one and not always the first."""
    return peers[position % len(peers)]
