"""How many peers each job gets: offers by the job scheduler, claims, and what is left over.

Pure arithmetic over counts; which peer sits where is decided in `placement.py`. A new job scheduler
is one function in `JOB_SCHEDULERS` and, if it shares out what others leave, one in `SPARE`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onyx.ids import JobId
from onyx.replica.scheduling.bounds import (
    TaskBounds,
    lower_bound,
    qualified_peers,
    upper_bound,
)
from onyx.replica.state import Replica

Counts = dict[JobId, int]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job can use."""

    job: JobId
    least: int
    most: float
    qualified: int


def demands(replica: Replica, bounds: Mapping[JobId, tuple[TaskBounds, ...]]) -> tuple[Demand, ...]:
    """The demand of each job, in order of submission."""
    return tuple(
        Demand(
            job,
            lower_bound(each),
            upper_bound(replica, job, each),
            qualified_peers(replica, job),
        )
        for job, each in bounds.items()
    )


def offer_balanced(peers: int, wanted: tuple[Demand, ...]) -> Counts:
    """The same for each; one more for the first ones if it does not come out even."""
    if not wanted:
        return {}
    each, more = divmod(peers, len(wanted))
    return {
        demand.job: min(each + (index < more), demand.qualified)
        for index, demand in enumerate(wanted)
    }


def offer_greedy(peers: int, wanted: tuple[Demand, ...]) -> Counts:
    """Everything for the first job."""
    return {
        demand.job: min(peers, demand.qualified) if index == 0 else 0
        for index, demand in enumerate(wanted)
    }


def claim(offers: Counts, wanted: tuple[Demand, ...]) -> Counts:
    """What each job takes of its offer: nothing if it could not run with it."""
    return {
        demand.job: int(min(demand.most, offers[demand.job]))
        if offers[demand.job] >= demand.least
        else 0
        for demand in wanted
    }


def share_balanced(spare: int, claims: Counts, wanted: tuple[Demand, ...]) -> Counts:
    """One at a time: to jobs that do not run yet and need least to run, then to the smallest."""
    result = dict(claims)
    while spare > 0:
        fitting = [
            (missing > 0, missing, result[demand.job], index, demand.job)
            for index, demand in enumerate(wanted)
            if result[demand.job] < min(demand.most, demand.qualified)
            and (missing := max(0, demand.least - result[demand.job])) <= spare
        ]
        if not fitting:
            return result
        uncovered = [each for each in fitting if each[0]]
        _, missing, _, _, job = min(uncovered or fitting, key=lambda each: each[1:4])
        step = max(1, missing)
        result[job] += step
        spare -= step
    return result


def share_nothing(spare: int, claims: Counts, wanted: tuple[Demand, ...]) -> Counts:
    """What the first job leaves stays idle."""
    return claims


JobScheduler = Callable[[int, tuple[Demand, ...]], Counts]
JOB_SCHEDULERS: dict[str, JobScheduler] = {
    "balanced": offer_balanced,
    "greedy": offer_greedy,
}
SPARE: dict[str, Callable[[int, Counts, tuple[Demand, ...]], Counts]] = {
    "balanced": share_balanced,
    "greedy": share_nothing,
}


def utilization(scheduler: str, peers: int, wanted: tuple[Demand, ...]) -> Counts:
    """Peers of each job, all told."""
    offers = JOB_SCHEDULERS[scheduler](peers, wanted)
    claims = claim(offers, wanted)
    spare = sum(offers.values()) - sum(claims.values())
    return SPARE[scheduler](spare, claims, wanted)
