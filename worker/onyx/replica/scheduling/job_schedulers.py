"""How many peers each job is offered, and who gets what the others leave: pure arithmetic.

A job scheduler is two functions over the demands of the running jobs, in order of submission. One
that comes later is a further row of `JOB_SCHEDULERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import msgspec

from onyx.ids import JobId
from onyx.replica.scheduling.demand import Demand

Counts = Mapping[JobId, int]


class JobScheduler(msgspec.Struct, frozen=True):
    offer: Callable[[Sequence[Demand], int], dict[JobId, int]]
    """(demands, peers) -> peers offered to each job; one that is not among them gets none."""
    prefer: Callable[[Demand, int, int, int], tuple[float, ...]] | None
    """(demand, its number in the order, peers it has, all peers) -> the least of these is served
    first;
    None: what is left stays idle."""


def claim(demand: Demand, offer: int) -> int:
    """What a job takes of its offer: nothing when it cannot run with it.

    Other than in the original, an offer is not cut to the peers with the right tags (the upper
    bound is): what a job cannot use is spare and goes to the others.
    """
    return 0 if offer < demand.lower else int(min(demand.upper, offer))


def distribute(scheduler: JobScheduler, demands: Sequence[Demand], peers: int) -> dict[JobId, int]:
    """Peers of each job, after offers, claims and the distribution of the spare."""
    offers = scheduler.offer(demands, peers)
    got = {demand.job: claim(demand, offers.get(demand.job, 0)) for demand in demands}
    if scheduler.prefer is None:
        return got
    spare = sum(offers.values()) - sum(got.values())
    lower = {demand.job: demand.lower for demand in demands}
    upper = {demand.job: demand.upper for demand in demands}
    while spare > 0:
        open_ = [
            (scheduler.prefer(demand, order, got[demand.job], peers), demand.job)
            for order, demand in enumerate(demands)
            if demand.job in offers
            and got[demand.job] < upper[demand.job]
            and lower[demand.job] - got[demand.job] <= spare
        ]
        if not open_:
            break
        _, job = min(open_)
        got[job] += 1
        spare -= 1
    return {
        demand.job: got[demand.job] if got[demand.job] >= lower[demand.job] else 0
        for demand in demands
    }


def _balanced_offer(demands: Sequence[Demand], peers: int) -> dict[JobId, int]:
    each, more = divmod(peers, len(demands)) if demands else (0, 0)
    return {demand.job: each + (order < more) for order, demand in enumerate(demands)}


def _balanced_preference(demand: Demand, order: int, has: int, peers: int) -> tuple[float, ...]:
    missing = max(0, demand.lower - has)
    return (missing == 0, missing, has, order)


def _greedy_offer(demands: Sequence[Demand], peers: int) -> dict[JobId, int]:
    return {demand.job: peers if order == 0 else 0 for order, demand in enumerate(demands)}


def _percentage_offer(demands: Sequence[Demand], peers: int) -> dict[JobId, int]:
    """The earliest jobs whose shares make up no more than 100, so that none that runs has to give
    way to a later one; what their shares leave over is for the highest of them."""
    totals = accumulate(demand.share for demand in demands)
    served = [demand for demand, total in zip(demands, totals, strict=True) if total <= 100]
    by_share = sorted(served, key=lambda each: -each.share)
    offers = dict(split_by_share([(each.job, each.share) for each in by_share], peers))
    if by_share:
        offers[by_share[0].job] += peers - sum(offers.values())
    return offers


def split_by_share(shares: Sequence[tuple[JobId, int]], peers: int) -> list[tuple[JobId, int]]:
    """Peers by percentage: quotients, and the floor of the summed remainders to the largest.

    Among equal remainders the later job is served first, as in the original.
    """
    parts = sorted(
        (
            (peers * share % 100, -order, job, peers * share // 100)
            for order, (job, share) in enumerate(shares)
        ),
        key=lambda part: (-part[0], part[1]),
    )
    more = sum(part[0] for part in parts) // 100
    served = [(job, number + (order < more)) for order, (_, _, job, number) in enumerate(parts)]
    return served[more:] + served[:more]


def _percentage_preference(demand: Demand, order: int, has: int, peers: int) -> tuple[float, ...]:
    return (max(0, demand.lower - has), -demand.share, order)


JOB_SCHEDULERS: Mapping[str, JobScheduler] = {
    "balanced": JobScheduler(_balanced_offer, _balanced_preference),
    "greedy": JobScheduler(_greedy_offer, None),
    "percentage": JobScheduler(_percentage_offer, _percentage_preference),
}
