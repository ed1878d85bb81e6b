"""How many virtual peers a job needs before it starts, on a cluster that it has for itself.

By what the log would hold of the job and by the schedulers themselves, so that nobody is given a
number with which the job waits. What tags ask for and what other jobs have is not known here.
"""

from __future__ import annotations

import math

from onyx.ids import JobId, TaskName
from onyx.model.job import Job
from onyx.replica.scheduling import colocation
from onyx.replica.scheduling.demand import Demand
from onyx.replica.scheduling.task_schedulers import split
from onyx.replica.spec import JobSpec
from onyx.replica.spec_of_job import spec_of

_SHARES = "percentage"
SHARES_OF_ONE_MAX = 100
"""A task with one percent has a peer when there are so many."""


def peers_needed(job: Job) -> dict[str, int]:
    """Fewest peers with which a job starts, by task; their sum is what a cluster must have free.

    Spark runs all tasks of a job with `engine: spark` in one of its own, `spark`. Colocated tasks
    come in batches with a peer of each. Under the percentage task scheduler there are so many that
    the smallest share is enough.
    """
    spec = spec_of(job)
    least = {task.name: task.min_peers for task in spec.tasks}
    if spec.task_scheduler == colocation.SCHEDULER:
        least = dict.fromkeys(least, max(least.values(), default=1))
    elif spec.task_scheduler == _SHARES:
        least = _by_shares(spec, least)
    return {str(task): count for task, count in least.items()}


def _by_shares(spec: JobSpec, least: dict[TaskName, int]) -> dict[TaskName, int]:
    """The split of the smallest number of peers by which no task has too few."""
    needs = _alone(spec, least)
    for number in range(needs.lower, needs.qualified + 1):
        found = split(needs, number)
        if all(found[task] >= count for task, count in least.items()):
            return found
    return least


def _alone(spec: JobSpec, least: dict[TaskName, int]) -> Demand:
    """What the job asks for while it has nothing, where there is no lack of peers."""
    return Demand(
        job=JobId(""),
        tasks=tuple(least),
        minimum=least,
        wanted=least,
        maximum={each.name: each.max_peers or math.inf for each in spec.tasks},
        present=dict.fromkeys(least, 0),
        frozen=frozenset(),
        grouped=frozenset(each.name for each in spec.tasks if each.flux_policy),
        qualified=SHARES_OF_ONE_MAX * sum(least.values()),
        saturation=math.inf,
        scheduler=spec.task_scheduler,
        share=0,
        task_shares={each.name: each.percentage or 0 for each in spec.tasks},
    )
