"""How few and how many peers a job or task may have, and which peers may serve it."""

from __future__ import annotations

from dataclasses import dataclass

from onyx.ids import JobId, PeerId, TaskName
from onyx.replica.state import NOTHING, Replica


@dataclass(frozen=True, slots=True)
class TaskBounds:
    """Limits of one task. A frozen task has exactly the peers it has: they hold its state."""

    task: TaskName
    least: int
    most: float
    frozen: bool = False


def task_bounds(replica: Replica, job: JobId) -> tuple[TaskBounds, ...]:
    """Limits of the tasks of a job, in the order of its tasks."""
    least = replica.min_required_peers.get(job, NOTHING)
    most = replica.task_saturation.get(job, NOTHING)
    policies = replica.flux_policies.get(job, NOTHING)
    allocation = replica.allocations.get(job, NOTHING)
    found = []
    for task in replica.tasks.get(job, ()):
        present = len(allocation.get(task, ()))
        if present and policies.get(task) == "kill":
            found.append(TaskBounds(task, present, present, frozen=True))
        else:
            required = least.get(task) or 1
            found.append(TaskBounds(task, required, most.get(task, float("inf"))))
    return tuple(found)


def lower_bound(bounds: tuple[TaskBounds, ...]) -> int:
    """Peers without which the job cannot run."""
    return sum(each.least for each in bounds)


def upper_bound(replica: Replica, job: JobId, bounds: tuple[TaskBounds, ...]) -> float:
    """Most peers that the job can use."""
    return min(replica.saturation.get(job, float("inf")), sum(each.most for each in bounds))


def satisfies(replica: Replica, peer: PeerId, required: tuple[str, ...]) -> bool:
    """Whether a peer has all tags that a task requires."""
    return not required or set(required) <= set(replica.peer_tags.get(peer) or ())


def qualified_peers(replica: Replica, job: JobId) -> int:
    """How many peers could serve at least one task of the job."""
    tags = replica.required_tags.get(job, NOTHING)
    needed = [tuple(tags.get(task) or ()) for task in replica.tasks.get(job, ())]
    if not all(needed):
        return len(replica.peers)
    return sum(any(satisfies(replica, peer, each) for each in needed) for peer in replica.peers)
