"""What scheduling must know of one job, collected from the replica once.

Thousands of jobs may wait while others come and go, and each entry that makes a difference to
scheduling asks for the demands of all. So a demand is kept with the running half of its job, which
is the same object until the job changes, and holds as long as there are the same kinds of peers.
That of a colocated job looks at what others have, and is found anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from onyx.ids import NO_POSITION, JobId, TaskName
from onyx.replica.scheduling import colocation
from onyx.replica.state import Replica

Kinds = Mapping[tuple[str, ...], int]
"""How many peers there are with each set of tags (`Replica.peer_kinds`)."""
_KEPT = "demand"


class Demand(msgspec.Struct, frozen=True, dict=True):
    """Limits and present state of one job; every mapping has all of its tasks."""

    job: JobId
    tasks: tuple[TaskName, ...]
    minimum: Mapping[TaskName, int]
    """Fewest peers to run: of a task that recovers one, once its job has begun."""
    wanted: Mapping[TaskName, int]
    """Fewest peers to begin; a task that has fewer gets one before others get more."""
    maximum: Mapping[TaskName, float]
    """No more than there are peers with the tags of the task."""
    present: Mapping[TaskName, int]
    frozen: frozenset[TaskName]
    """Tasks of flux policy `kill` that have peers: none may come, none may go."""
    grouped: frozenset[TaskName]
    qualified: int
    """Peers that may work on at least one task."""
    saturation: float
    scheduler: str
    share: int
    task_shares: Mapping[TaskName, float]
    priority: int = 0
    is_heir: bool = False
    """Whether the job takes the place of one that it has ended."""
    batches: int | None = None
    """Batches of a colocated job: how often the processes have room for one peer of each task."""

    @cached_property
    def rank(self) -> tuple[int, int]:
        """The least goes first where not all jobs can run: by priority, then those that run."""
        return -self.priority, 0 if self.runs else 2 - self.is_heir

    @cached_property
    def runs(self) -> bool:
        """Whether the job has peers."""
        return any(self.present.values())

    @cached_property
    def lower(self) -> int:
        """Fewest peers with which the job runs."""
        return sum(map(self.least, self.tasks))

    def least(self, task: TaskName) -> int:
        """Fewest peers with which a task runs."""
        return self.present[task] if task in self.frozen else self.minimum[task]

    @cached_property
    def upper(self) -> float:
        """Most peers that the job can use; 0 when it cannot have its minimum, whatever it gets."""
        most = {
            task: self.present[task] if task in self.frozen else self.maximum[task]
            for task in self.tasks
        }
        if any(most[task] < self.minimum[task] for task in self.tasks if task not in self.frozen):
            return 0
        limit = math.inf if self.frozen else self.saturation
        if self.batches is not None:
            limit = min(limit, self.batches * len(self.tasks))
        upper = min(limit, self.qualified, sum(most.values()))
        return upper if upper >= self.lower else 0


def jobs_to_serve(replica: Replica) -> list[JobId]:
    """Running jobs that want peers: by priority, those of one in the order of submission."""
    found = [job for job in replica.jobs if not replica.run(job).suspended]
    return sorted(found, key=lambda job: -replica.spec(job).priority)


def demand(replica: Replica, job: JobId) -> Demand:
    """The demand of a running job."""
    beside, kinds = replica.run(job).__dict__, replica.peer_kinds
    kept: tuple[Kinds, Demand] | None = beside.get(_KEPT)
    if kept is not None and kept[0] == kinds and kept[1].job == job:
        return kept[1]
    found = _demand(replica, job, kinds)
    if found.batches is None:
        beside[_KEPT] = kinds, found
    return found


def _demand(replica: Replica, job: JobId, kinds: Kinds) -> Demand:
    spec = replica.spec(job)
    tasks = tuple(spec.by_name)
    tags = {task.name: task.required_tags for task in spec.tasks}
    policies = {task.name: task.flux_policy for task in spec.tasks}
    run = replica.run(job)
    present = {task: len(run.allocation.get(task, ())) for task in tasks}
    everybody = sum(kinds.values())

    def able(task: TaskName) -> int:
        return count_able(kinds, [tags[task]]) if tags[task] else everybody

    begun = run.allocation_version != NO_POSITION
    recovering = {task for task in tasks if begun and policies[task] == "recover"}
    wanted = {task.name: task.min_peers for task in spec.tasks}
    least = {task: 1 if task in recovering else wanted[task] for task in tasks}
    most = {task.name: min(_limit(task.max_peers), able(task.name)) for task in spec.tasks}
    for task in recovering:  # no more come than it began with, or lost
        most[task] = min(most[task], max(wanted[task], present[task]))
    colocated = spec.task_scheduler == colocation.SCHEDULER
    if colocated:  # tasks come in batches: the narrowest limits are those of all
        wanted = dict.fromkeys(tasks, max(wanted.values(), default=1))
        least = dict.fromkeys(tasks, max(least.values(), default=1))
        most = dict.fromkeys(tasks, min(most.values(), default=math.inf))
    return Demand(
        job=job,
        tasks=tasks,
        minimum=least,
        wanted=wanted,
        maximum=most,
        present=present,
        frozen=frozenset(t for t in tasks if policies[t] == "kill" and present[t]),
        grouped=frozenset(task for task in tasks if policies[task]),
        qualified=count_able(kinds, tags.values()),
        saturation=_limit(spec.max_peers),
        scheduler=spec.task_scheduler,
        share=spec.percentage or 0,
        task_shares={task.name: task.percentage or 0 for task in spec.tasks},
        priority=spec.priority,
        is_heir=replica.records[job].upgrades is not None,
        batches=colocation.count_batches(replica, job) if colocated else None,
    )


def _limit(peers: int | None) -> float:
    return math.inf if peers is None else peers


def count_able(kinds: Kinds, requirements: Iterable[tuple[str, ...]]) -> int:
    """Peers whose tags satisfy at least one of the requirements."""
    wanted = [frozenset(required) for required in requirements]
    if any(not required for required in wanted):
        return sum(kinds.values())
    return sum(
        number
        for tags, number in kinds.items()
        if any(required.issubset(tags) for required in wanted)
    )


def has_tags(tags: Iterable[str], required: Iterable[str]) -> bool:
    """Whether a peer with these tags has all that a task requires."""
    return frozenset(required).issubset(tags)
