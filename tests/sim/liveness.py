"""What must come true once all faults have stopped (V1 to V4, V6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.log.runs import by_job

from onyx.ids import JobId
from onyx.replica.jobs import restless
from onyx.replica.scheduling.dealing import by_group
from onyx.replica.state import Replica

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster


def membership(cluster: Cluster) -> str | None:
    """V1: all live groups have joined, know all, and nobody else is a member."""
    model = cluster.checkers.model
    for process in cluster.processes:
        if not process.joined:
            return f"V1: process {process.number} ({process.group}) has not joined"
        if process.replica.version != model.version:
            return f"V1: {process.group} stands at {process.replica.version} of {model.version}"
        if sorted(model.groups_index.get(process.group, ())) != sorted(process.wanted):
            return f"V1: the peers of {process.group} should be {process.wanted}"
    if model.prepared or model.accepted:
        return f"V1: joins under way: {dict(model.prepared)} {dict(model.accepted)}"
    alive = sorted(process.group for process in cluster.processes)
    pulses = sorted(cluster.server.pulses)
    if not sorted(model.groups) == alive == pulses:
        return f"V1: members {sorted(model.groups)}, alive {alive}, pulses {pulses}"
    return None


def runnable(cluster: Cluster, replica: Replica) -> list[JobId]:
    """Jobs that want peers and that the whole cluster, if it had nothing else to do, could run."""
    groups = by_group(replica, replica.peers).values()
    room = {"balanced": len(replica.peers), "colocated": max(map(len, groups), default=0)}
    wanting = [job for job in replica.jobs if not replica.run(job).suspended]
    jobs = cluster.jobs
    return [job for job in wanting if len(jobs[job].tasks) <= room[jobs[job].task_scheduler]]


def allocation(cluster: Cluster) -> str | None:
    """V2: when some job can run, some job has peers."""
    model = cluster.checkers.model
    allocated = [job for job in model.jobs if any(model.run(job).allocation.values())]
    waiting = runnable(cluster, model)
    if waiting and not allocated:
        return f"V2: {waiting} could run with {len(model.peers)} peers and none does"
    return None


def completion(cluster: Cluster) -> str | None:
    """V3: finite jobs that fit complete, and so do those that drain."""
    model = cluster.checkers.model
    waiting = [
        job
        for job in runnable(cluster, model)
        if cluster.jobs[job].finite or model.run(job).draining
    ]
    return f"V3: {waiting} do not complete" if waiting else None


def rest(cluster: Cluster) -> str | None:
    """V4: a paused job that has peers comes to rest."""
    model = cluster.checkers.model
    paused = [job for job in by_job(model, "paused") if model.run(job).allocation]
    moving = {job: restless(model, job) for job in paused}
    found = {job: tasks for job, tasks in moving.items() if tasks}
    return f"V4: {found} do not come to rest" if found else None
