"""The allocation of the whole cluster: counts, then peers.

Runs after every entry that changes members or jobs, in every process, with the same result. When
the places have no solution (tags), the newest job that asks for tags is left out, and so on; in the
original it keeps its old peers by accident, here it has none.
"""

from __future__ import annotations

from collections.abc import Sequence

from immutables import Map
from msgspec.structs import replace

from onyx.ids import JobId, PeerId, TaskName
from onyx.replica.scheduling.ackers import choose_ackers
from onyx.replica.scheduling.colocation import choose_machines
from onyx.replica.scheduling.demand import Demand, demand, jobs_to_serve, kinds_of_peers
from onyx.replica.scheduling.job_schedulers import JOB_SCHEDULERS, distribute
from onyx.replica.scheduling.placement import Places, Plan, place
from onyx.replica.scheduling.task_schedulers import TASK_SCHEDULERS, split
from onyx.replica.state import NOTHING, Replica

Allocation = Map[TaskName, tuple[PeerId, ...]]


def reconfigure(replica: Replica) -> Replica:
    """The replica with the allocations (and the ackers of jobs that change) that its members and
    jobs ask for."""
    runs = {job: replica.run(job) for job in replica.jobs}
    if not replica.peers and not any(run.allocation for run in runs.values()):
        return replica  # jobs may be many before the first worker comes
    kinds = kinds_of_peers(replica)
    demands = [demand(replica, job, kinds) for job in jobs_to_serve(replica)]
    runnable = [each for each in demands if each.scheduler in TASK_SCHEDULERS]
    allocations = _allocate(replica, runnable)
    for job, run in runs.items():
        after = allocations.get(job, NOTHING)
        if after != run.allocation:
            ackers = choose_ackers(replica, job, after)
            replica = replica.with_run(job, replace(run, allocation=after, ackers=ackers))
    return replica


def plan(replica: Replica, demands: Sequence[Demand]) -> Plan:
    """Peers of each task of each job; a job that would starve somewhere gets none."""
    scheduler = JOB_SCHEDULERS.get(replica.job_scheduler, JOB_SCHEDULERS["balanced"])
    numbers = distribute(scheduler, demands, len(replica.peers))
    counts = {each.job: split(each, numbers[each.job]) for each in demands}
    wanted = {e.job: min(counts[e.job].values(), default=0) for e in demands if e.batches}
    machines, pools = choose_machines(replica, wanted)
    for job, batches in machines.items():
        counts[job] = dict.fromkeys(counts[job], sum(batches.values()))
    running = {e.job: counts[e.job] if _runs(e, counts[e.job]) else {} for e in demands}
    return Plan(running, {job: machines[job] for job in machines if running[job]}, pools)


def _runs(demand: Demand, counts: dict[TaskName, int]) -> bool:
    return all(counts[task] >= demand.least(task) for task in demand.tasks)


def _allocate(replica: Replica, demands: list[Demand]) -> dict[JobId, Allocation]:
    while demands:
        places = place(replica, plan(replica, demands))
        if places is not None:
            return _by_job(places)
        left_out = _newest_with_tags(replica, demands)
        demands = [each for each in demands if each is not left_out]
    return {}


def _newest_with_tags(replica: Replica, demands: Sequence[Demand]) -> Demand:
    """Only tags can leave a seat empty, so a job without them is never left out before one."""
    tagged = [
        each for each in demands if any(task.required_tags for task in replica.spec(each.job).tasks)
    ]
    return (tagged or demands)[-1]


def _by_job(places: Places) -> dict[JobId, Allocation]:
    found: dict[JobId, dict[TaskName, tuple[PeerId, ...]]] = {}
    for (job, task), peers in places.items():
        found.setdefault(job, {})[task] = peers
    return {job: Map(tasks) for job, tasks in found.items()}
