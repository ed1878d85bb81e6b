"""What follows from any command: tasks of peers, slots, allocation versions, readiness, sealers.

Derived by comparing the replica before and after, not by each command, and only for what changed:
persistent maps that nobody touched are the same object.
"""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from onyx.ids import JobId, PeerId, Position, Slot, TaskName
from onyx.replica import jobs
from onyx.replica.scheduling.allocation import choose_ackers, reconfigure
from onyx.replica.state import NOTHING, JobRun, Replica

Assignment = tuple[JobId, TaskName]
Slots = Map[TaskName, Map[PeerId, Slot]]


def settle(old: Replica, new: Replica, position: Position) -> Replica:
    """The new replica with everything that follows from its difference to the old one."""
    if new is old:
        return new
    changed = changed_runs(old, new)
    suspended = any(old.run(job).suspended != new.run(job).suspended for job in changed)
    if new.peers != old.peers or new.jobs != old.jobs or suspended:
        new = _replace_lost_ackers(reconfigure(new))
        changed = changed_runs(old, new)
    moved = [job for job in changed if _has_moved(old.run(job), new.run(job))]
    if moved:
        new = _follow(old, new, moved, position)
    for job in changed:
        new = _elect_sealers(new, job, position)
    return new


def changed_runs(old: Replica, new: Replica) -> list[JobId]:
    """Jobs that run in either replica and whose running halves are not the same object, in the
    order of submission."""
    if new.records is old.records:
        return []
    jobs = new.jobs if new.jobs is old.jobs else dict.fromkeys((*old.jobs, *new.jobs))
    before, after = old.records, new.records
    touched = [job for job in jobs if before.get(job) is not after.get(job)]
    return [job for job in touched if old.run(job) is not new.run(job)]


def _replace_lost_ackers(replica: Replica) -> Replica:
    """Ackers that are not on their job any more are replaced, and a job without peers has none."""
    for job in replica.jobs:
        run = replica.run(job)
        if not run.ackers:
            continue
        there = {peer for peers in run.allocation.values() for peer in peers}
        if not there.issuperset(run.ackers):
            chosen = choose_ackers(replica, job, run.allocation)
            assert there.issuperset(chosen), "ackers are on their job"
            replica = replica.with_run(job, replace(run, ackers=chosen))
    return replica


def _has_moved(old: JobRun, new: JobRun) -> bool:
    return old.allocation != new.allocation or old.ackers != new.ackers


def _follow(old: Replica, new: Replica, moved: list[JobId], position: Position) -> Replica:
    # A peer is ready for one allocation version only. The version is the position of this entry, so
    # no signal for it can have been written before, and all of older versions are void.
    for job in moved:
        if job in new.jobs:
            run = new.run(job)
            assert position > run.allocation_version, "allocation versions only grow"
            now = replace(
                run,
                slots=_slots(run.allocation, run.slots),
                allocation_version=position,
                ready=NOTHING,
                rested=NOTHING,
                displaced=_is_displaced(old, new, job),
            )
            new = new.with_run(job, now)
    before, after = _assignments(old, moved), _assignments(new, moved)
    state = new.peer_state
    for peer in sorted({*before, *after}):
        if before.get(peer) == after.get(peer):
            continue
        if peer in new.groups_reverse_index and state.get(peer) != "idle":
            state = state.set(peer, "idle")
    return replace(new, peer_state=state)


def _is_displaced(old: Replica, new: Replica, job: JobId) -> bool:
    """Whether others have the peers that a job had. When a worker leaves, those of its job and
    those that take over change at once: that is a loss to all, and displaces nobody."""
    before, after = old.run(job), new.run(job)
    if any(after.allocation.values()) or after.suspended:
        return False
    if not any(before.allocation.values()):
        return before.displaced
    return all(peer in new.groups_reverse_index for peer in old.peers)


def _assignments(replica: Replica, jobs: list[JobId]) -> dict[PeerId, Assignment]:
    return {
        peer: (job, task)
        for job in jobs
        for task, peers in replica.run(job).allocation.items()
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
        assert len(taken) == len(peers), "each peer of a task has a slot of its own"
        found[task] = before if kept == before else Map(kept)
    return Map(found)


def _elect_sealers(replica: Replica, job: JobId, position: Position) -> Replica:
    """One peer of each output task that is not sealed, once all sources that feed it are exhausted:
    of an output at the end all of the job.

    The elected one stays elected while it is on the task.
    """
    if job not in replica.jobs:
        return replica
    run = replica.run(job)
    elected: dict[TaskName, PeerId] = {}
    for task in replica.spec(job).outputs if run.exhausted_inputs else ():
        peers = sorted(run.allocation.get(task, ()))
        if peers and task not in run.sealed_outputs and jobs.may_seal(replica, job, task):
            present = run.sealers.get(task)
            elected[task] = present if present in peers else elected_sealer(peers, position)
    if elected == dict(run.sealers):
        return replica
    return replica.with_run(job, replace(run, sealers=Map(elected)))


def elected_sealer(peers: list[PeerId], position: Position) -> PeerId:
    """By position, so that everybody elects the same one and not always the first."""
    return peers[position % len(peers)]
