"""How the peers of one job are split over its tasks: pure arithmetic.

A task scheduler is a function of a demand and a number of peers; one that comes later is a further
row of `TASK_SCHEDULERS`. Zero everywhere means that the job does not run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from fractions import Fraction

from onyx.ids import TaskName
from onyx.replica.scheduling.demand import Demand

Split = dict[TaskName, int]


def split(demand: Demand, number: int) -> Split:
    """Peers of each task; a scheduler that this version does not have runs nothing."""
    scheduler = TASK_SCHEDULERS.get(demand.scheduler)
    if scheduler is None or number < demand.lower:
        return dict.fromkeys(demand.tasks, 0)
    return scheduler(demand, number)


def _balanced(demand: Demand, number: int) -> Split:
    """Minimum first, then one by one to the task with fewest peers, the earliest among equals, and
    to those first that lack what they began with."""
    counts = {
        task: demand.present[task]
        if task in demand.frozen
        else int(min(demand.maximum[task], demand.minimum[task]))
        for task in demand.tasks
    }
    open_ = [
        (counts[task] >= demand.wanted[task], counts[task], order, task)
        for order, task in enumerate(demand.tasks)
        if task not in demand.frozen and counts[task] < demand.maximum[task]
    ]
    heapq.heapify(open_)
    for _ in range(number - sum(counts.values())):
        if not open_:
            break
        _, _, order, task = open_[0]
        counts[task] += 1
        if counts[task] < demand.maximum[task]:
            whole = counts[task] >= demand.wanted[task]
            heapq.heapreplace(open_, (whole, counts[task], order, task))
        else:
            heapq.heappop(open_)
    return counts


def _percentage(demand: Demand, number: int) -> Split:
    """By largest remainder; who falls outside its limits gets the limit, the others the rest."""
    counts = {task: demand.present[task] for task in demand.tasks if task in demand.frozen}
    all_shares = _whole_shares(demand)
    enough = number >= sum(demand.wanted.values())
    floors = demand.wanted if enough else demand.minimum
    while True:
        open_ = [task for task in demand.tasks if task not in counts]
        shares = {task: all_shares[task] for task in open_}
        parts = _largest_remainders(shares, max(0, number - sum(counts.values())))
        limited = {
            task: limit for task in open_ if (limit := _limit(demand, floors, task, parts[task]))
        }
        if not limited:
            return {task: counts.get(task, parts.get(task, 0)) for task in demand.tasks}
        counts.update(limited)


def _limit(
    demand: Demand, floors: Mapping[TaskName, int], task: TaskName, count: int
) -> int | None:
    """The limit that a count breaks: more than the maximum, or a grouped task below its minimum."""
    if count > demand.maximum[task]:
        return int(demand.maximum[task])
    if task in demand.grouped and count < floors[task]:
        return floors[task]
    return None


def _whole_shares(demand: Demand) -> dict[TaskName, Fraction]:
    """The shares of all tasks. What is missing from 100 is for the highest, the earliest among
    equals."""
    shares = {task: Fraction(demand.task_shares.get(task, 0)) for task in demand.tasks}
    highest = max(shares, key=shares.__getitem__, default=None)
    if highest is not None and shares[highest]:
        shares[highest] += max(0, 100 - sum(shares.values()))
    return shares


def _largest_remainders(shares: Mapping[TaskName, Fraction], number: int) -> Split:
    """The earliest task first among equal remainders; shares are rescaled to these tasks."""
    total = sum(shares.values())
    if not total:
        return dict.fromkeys(shares, 0)
    exact = {task: share * number / total for task, share in shares.items()}
    parts = {task: int(exact[task]) for task in shares}
    most = sorted(shares, key=lambda task: parts[task] - exact[task])
    for task in most[: number - sum(parts.values())]:
        parts[task] += 1
    return parts


def _colocated(demand: Demand, number: int) -> Split:
    """A demand with number for each task: whole batches, as many as the processes have room for."""
    limits = [number // len(demand.tasks), *demand.maximum.values()]
    limits += [demand.batches or 0, *(demand.present[task] for task in demand.frozen)]
    return dict.fromkeys(demand.tasks, int(min(limits)))


TASK_SCHEDULERS: Mapping[str, Callable[[Demand, int], Split]] = {
    "balanced": _balanced,
    "percentage": _percentage,
    "colocated": _colocated,
}
