"""Scheduling: from a replica to allocations, pure and deterministic.

Counts per job and per task are arithmetic (`offers`, `tasks`); who sits where is an assignment
problem (`placement`). If the plan cannot be met the last job is left out and the rest is planned
again. Runs once a process, and only after entries that change members or jobs.
"""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from onyx.ids import JobId, PeerId, Slot, TaskName
from onyx.replica.members import without
from onyx.replica.scheduling.ackers import choose_ackers
from onyx.replica.scheduling.bounds import task_bounds
from onyx.replica.scheduling.offers import JOB_SCHEDULERS, demands, utilization
from onyx.replica.scheduling.placement import Placement, place
from onyx.replica.scheduling.tasks import TASK_SCHEDULERS, TaskCounts
from onyx.replica.state import NOTHING, Replica

Plan = dict[JobId, TaskCounts]


def reconfigure(replica: Replica) -> Replica:
    """The replica with its peers on the tasks of its jobs."""
    for considered in range(len(replica.jobs), -1, -1):
        wanted = plan(replica, replica.jobs[:considered])
        if wanted == _present(replica):
            return _tidy(replica)
        placed = place(replica, wanted)
        if placed is not None:
            return _install(replica, wanted, placed)
    raise AssertionError("an empty plan can always be placed")


def plan(replica: Replica, jobs: tuple[JobId, ...]) -> Plan:
    """Peers of each task; none for running jobs that are not considered."""
    bounds = {job: task_bounds(replica, job) for job in jobs if _known(replica, job)}
    counts: dict[JobId, int] = {}
    if bounds:
        counts = utilization(replica.job_scheduler, len(replica.peers), demands(replica, bounds))
    nothing = {job: dict.fromkeys(replica.tasks.get(job, ()), 0) for job in replica.jobs}
    return nothing | {
        job: TASK_SCHEDULERS[replica.task_schedulers[job]](counts[job], bounds[job])
        for job in bounds
    }


def _known(replica: Replica, job: JobId) -> bool:
    """Whether both its schedulers exist in this version."""
    known = replica.task_schedulers.get(job) in TASK_SCHEDULERS
    return known and replica.job_scheduler in JOB_SCHEDULERS


def _present(replica: Replica) -> Plan:
    return {
        job: {
            task: len(replica.allocations.get(job, NOTHING).get(task, ()))
            for task in replica.tasks.get(job, ())
        }
        for job in replica.jobs
    }


def _install(replica: Replica, wanted: Plan, placed: Placement) -> Replica:
    allocations = replica.allocations
    for job, counts in wanted.items():
        tasks = {task: tuple(placed[job, task]) for task in counts}
        if _runs(replica, job, tasks):
            allocations = allocations.set(job, Map(tasks))
        else:
            allocations = without(allocations, job)
    changed = replace(
        replica,
        allocations=allocations,
        task_slot_ids=_slots(replica, allocations),
        ackers=_ackers(replica, allocations),
    )
    return _idle(replica, changed)


def _runs(replica: Replica, job: JobId, tasks: dict[TaskName, tuple[PeerId, ...]]) -> bool:
    least = {each.task: each.least for each in task_bounds(replica, job)}
    return bool(tasks) and all(len(peers) >= least[task] > 0 for task, peers in tasks.items())


def _tidy(replica: Replica) -> Replica:
    """The counts are as planned: only jobs whose last peers have gone lose their empty places."""
    empty = [
        job for job in sorted(replica.allocations) if not any(replica.allocations[job].values())
    ]
    if not empty:
        return _keep_ackers(replica)
    return replace(
        replica,
        allocations=without(replica.allocations, *empty),
        task_slot_ids=without(replica.task_slot_ids, *empty),
    )


def _keep_ackers(replica: Replica) -> Replica:
    """Ackers that have gone are replaced even if no count has changed."""
    ackers = replica.ackers
    for job in replica.allocations:
        if any(peer not in replica.peers for peer in ackers.get(job, ())):
            ackers = ackers.set(job, choose_ackers(replica, job, replica.allocations[job]))
    return replica if ackers is replica.ackers else replace(replica, ackers=ackers)


def _slots(
    replica: Replica, allocations: Map[JobId, Map[TaskName, tuple[PeerId, ...]]]
) -> Map[JobId, Map[TaskName, Map[PeerId, Slot]]]:
    """A peer that stays keeps its slot; one that is new takes the smallest that is free."""
    slots = replica.task_slot_ids
    for job in sorted(slots):
        if job not in allocations:
            slots = slots.delete(job)
    for job in sorted(allocations):
        before = replica.task_slot_ids.get(job, NOTHING)
        tasks = {
            task: _task_slots(before.get(task, NOTHING), peers)
            for task, peers in sorted(allocations[job].items())
        }
        slots = slots.set(job, Map(tasks))
    return slots


def _task_slots(before: Map[PeerId, Slot], peers: tuple[PeerId, ...]) -> Map[PeerId, Slot]:
    kept = {peer: before[peer] for peer in peers if peer in before}
    taken = set(kept.values())
    free = iter([Slot(number) for number in range(len(peers)) if number not in taken])
    return Map({peer: kept[peer] if peer in kept else next(free) for peer in peers})


def _ackers(
    replica: Replica, allocations: Map[JobId, Map[TaskName, tuple[PeerId, ...]]]
) -> Map[JobId, tuple[PeerId, ...]]:
    ackers = replica.ackers
    for job in replica.jobs:
        ackers = ackers.set(job, choose_ackers(replica, job, allocations.get(job, NOTHING)))
    return ackers


def _idle(old: Replica, new: Replica) -> Replica:
    """Peers that were given another place, or none, are idle until they signal ready."""
    before, after = _places(old), _places(new)
    state = new.peer_state
    for peer in sorted({*before, *after}):
        if before.get(peer) != after.get(peer) and state.get(peer, "idle") != "idle":
            state = state.set(peer, "idle")
    return new if state is new.peer_state else replace(new, peer_state=state)


def _places(replica: Replica) -> dict[PeerId, tuple[JobId, TaskName]]:
    return {
        peer: (job, task)
        for job in replica.allocations
        for task, peers in replica.allocations[job].items()
        for peer in peers
    }
