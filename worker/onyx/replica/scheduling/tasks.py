"""How a job's peers are spread over its tasks. A task scheduler is one function here."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from onyx.ids import TaskName
from onyx.replica.scheduling.bounds import TaskBounds, lower_bound

TaskCounts = dict[TaskName, int]


def distribute_balanced(peers: int, bounds: tuple[TaskBounds, ...]) -> TaskCounts:
    """Each its minimum, the rest one by one to the task that has fewest, earlier ones first."""
    if peers < lower_bound(bounds):
        return {each.task: 0 for each in bounds}
    counts = {each.task: int(min(each.most, each.least)) for each in bounds}
    left = peers - sum(counts.values())
    growing = [
        (counts[each.task], index)
        for index, each in enumerate(bounds)
        if not each.frozen and counts[each.task] < each.most
    ]
    heapq.heapify(growing)
    while left > 0 and growing:
        count, index = heapq.heappop(growing)
        counts[bounds[index].task] = count + 1
        left -= 1
        if count + 1 < bounds[index].most:
            heapq.heappush(growing, (count + 1, index))
    return counts


TASK_SCHEDULERS: dict[str, Callable[[int, tuple[TaskBounds, ...]], TaskCounts]] = {
    "balanced": distribute_balanced,
}
