"""The allocation of the whole cluster: peers for each job, then its tasks, and who keeps ledgers.

Runs after every entry that changes members or jobs, in every process, with the same result. When
the places have no solution (tags), the newest job that asks for tags is left out, and so on; in the
original it keeps its old peers by accident, here it has none.

A job scheduler is two functions over the demands of the running jobs, those of higher priority
first, then in order of submission. One that comes later is a further row of `JOB_SCHEDULERS`.

Other than in the original, the balanced scheduler takes no job's last peers for one that comes
later, unless that has a higher priority (`Demand.rank`). Where its arithmetic would, jobs are
admitted by rank as far as their least numbers fit, and only the rest is dealt out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import accumulate

import msgspec
from immutables import Map
from msgspec.structs import replace

from onyx.ids import JobId, PeerId, TaskName
from onyx.replica.scheduling.colocation import choose_groups
from onyx.replica.scheduling.demand import Demand, demand
from onyx.replica.scheduling.placement import Places, SeatPlan, place
from onyx.replica.scheduling.task_schedulers import TASK_SCHEDULERS, split
from onyx.replica.spec import JobSpec
from onyx.replica.state import NOTHING, Replica

Allocation = Map[TaskName, tuple[PeerId, ...]]


PERCENTAGE_DEFAULT = 10
"""When the submission says nothing (ours always says something)."""
Counts = Mapping[JobId, int]


def reconfigure(replica: Replica) -> Replica:
    """The replica with the allocations (and the ackers of jobs that change) that its members and
    jobs ask for."""
    runs = {job: replica.run(job) for job in replica.jobs}
    if not replica.peers and not any(run.allocation for run in runs.values()):
        return replica  # jobs may be many before the first worker comes
    demands = [demand(replica, job) for job, run in runs.items() if not run.suspended]
    demands.sort(key=lambda each: -each.priority)
    runnable = [each for each in demands if each.scheduler in TASK_SCHEDULERS]
    allocations = _allocate(replica, runnable)
    for job, run in runs.items():
        after = allocations.get(job, NOTHING)
        if after != run.allocation:
            ackers = choose_ackers(replica, job, after)
            replica = replica.with_run(job, replace(run, allocation=after, ackers=ackers))
    return replica


def plan(replica: Replica, demands: Sequence[Demand]) -> SeatPlan:
    """Peers of each task of each job; a job that would starve somewhere gets none."""
    scheduler = JOB_SCHEDULERS.get(replica.job_scheduler, JOB_SCHEDULERS["balanced"])
    numbers = distribute(scheduler, demands, len(replica.peers))
    if scheduler.keeps and _harms(numbers, demands):
        numbers = distribute_kept(scheduler, demands, len(replica.peers))
    assert sum(numbers.values()) <= len(replica.peers), "nobody is offered what is not there"
    # Jobs that wait may be many more than those that run.
    demands = [each for each in demands if numbers[each.job] >= each.lower]
    counts = {each.job: split(each, numbers[each.job]) for each in demands}
    wanted = {e.job: min(counts[e.job].values(), default=0) for e in demands if e.batches}
    groups, pools = choose_groups(replica, wanted)
    for job, batches in groups.items():
        counts[job] = dict.fromkeys(counts[job], sum(batches.values()))
    running = {e.job: counts[e.job] if _runs(e, counts[e.job]) else {} for e in demands}
    return SeatPlan(running, {job: groups[job] for job in groups if running[job]}, pools)


def _runs(demand: Demand, counts: dict[TaskName, int]) -> bool:
    return all(counts[task] >= demand.least(task) for task in demand.tasks)


def _allocate(replica: Replica, demands: list[Demand]) -> dict[JobId, Allocation]:
    while demands:
        places = place(replica, plan(replica, demands))
        if places is not None:
            seated = [peer for peers in places.values() for peer in peers]
            assert len(frozenset(seated)) == len(seated), "a peer has one task"
            return _by_job(places)
        left_out = _last_with_tags(replica, demands)
        demands = [each for each in demands if each is not left_out]
    return {}


def _last_with_tags(replica: Replica, demands: Sequence[Demand]) -> Demand:
    """The newest of the last rank. Only tags can leave a seat empty, so a job without them is never
    left out before one."""
    tagged = [
        each for each in demands if any(task.required_tags for task in replica.spec(each.job).tasks)
    ]
    return max(reversed(tagged or demands), key=lambda each: each.rank)


def _by_job(places: Places) -> dict[JobId, Allocation]:
    found: dict[JobId, dict[TaskName, tuple[PeerId, ...]]] = {}
    for (job, task), peers in places.items():
        found.setdefault(job, {})[task] = peers
    return {job: Map(tasks) for job, tasks in found.items()}


def choose_ackers(
    replica: Replica, job: JobId, allocation: Map[TaskName, tuple[PeerId, ...]]
) -> tuple[PeerId, ...]:
    """Peers of the job, in the order of their ids: so many as its submission says, or a percentage
    of all, rounded up.

    Peers on exempt tasks are none; those on the machine of such a peer come last. Those of a
    process that has an input of the job come first: trees begin and end there, so each has two
    messages less.
    """
    spec = replica.spec(job)
    wanted = _wanted(spec, sum(len(peers) for peers in allocation.values()))
    exempt = _exempt_tasks(spec)
    excluded = [peer for task in exempt for peer in allocation.get(task, ())]
    machines = {_machine(replica, peer) for peer in excluded} - {None}
    inputs = [peer for each in spec.tasks if each.input for peer in allocation.get(each.name, ())]
    group_of = replica.groups_reverse_index.get
    reading = {group_of(peer) for peer in inputs}

    def by_preference(peer: PeerId) -> tuple[bool, bool, PeerId]:
        return _machine(replica, peer) in machines, group_of(peer) not in reading, peer

    members = (peer for task, peers in allocation.items() if task not in exempt for peer in peers)
    return tuple(sorted(members, key=by_preference)[:wanted])


def _wanted(spec: JobSpec, peers: int) -> int:
    if spec.ackers is not None:
        return spec.ackers
    percentage = PERCENTAGE_DEFAULT if spec.acker_percentage is None else spec.acker_percentage
    return -(-percentage * peers // 100)


def _exempt_tasks(spec: JobSpec) -> frozenset[TaskName]:
    return frozenset(
        task.name
        for task in spec.tasks
        if task.acker_exempt
        or (task.input and spec.acker_exclude_inputs)
        or (task.output and spec.acker_exclude_outputs)
    )


def _machine(replica: Replica, peer: PeerId) -> object:
    """The host of a peer's address; None when it has announced none."""
    address = replica.peer_sites.get(peer, Map()).get("address")
    return address.rpartition(":")[0] or address if isinstance(address, str) else address


class JobScheduler(msgspec.Struct, frozen=True):
    offer: Callable[[Sequence[Demand], int], dict[JobId, int]]
    """(demands, peers) -> peers offered to each job; one that is not among them gets none."""
    prefer: Callable[[Demand, int, int, int], tuple[float, ...]] | None
    """(demand, its number in the order, peers it has, all peers) -> the least of these is served
    first;
    None: what is left stays idle."""
    keeps: bool = False
    """Whether jobs keep the peers that they need to run (`distribute_kept`)."""


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
    spare = sum(offers.values()) - sum(got.values())
    got = _deal(scheduler, [each for each in demands if each.job in offers], got, spare, peers)
    return {
        demand.job: got[demand.job] if got[demand.job] >= demand.lower else 0 for demand in demands
    }


def distribute_kept(
    scheduler: JobScheduler, demands: Sequence[Demand], peers: int
) -> dict[JobId, int]:
    """Peers of each job, when jobs are admitted by rank, as far as their least numbers fit."""
    got, spare = dict.fromkeys((each.job for each in demands), 0), peers
    for each in sorted(demands, key=lambda each: each.rank):
        if each.upper and each.lower <= spare:
            got[each.job] = each.lower
            spare -= each.lower
    return _deal(scheduler, [each for each in demands if got[each.job]], got, spare, peers)


def _harms(numbers: Counts, demands: Sequence[Demand]) -> bool:
    """Whether a job that runs and could go on gets nothing, or one gets peers that comes after
    another that gets none."""
    without = [each for each in demands if each.upper and not numbers[each.job]]
    last = max((each.rank for each in demands if numbers[each.job]), default=(0, 0))
    return any(each.runs or each.rank < last for each in without)


def _deal(
    scheduler: JobScheduler,
    demands: Sequence[Demand],
    got: dict[JobId, int],
    spare: int,
    peers: int,
) -> dict[JobId, int]:
    """What the jobs have when what is spare is dealt out, too."""
    if scheduler.prefer is None:
        return got
    open_ = [
        (scheduler.prefer(demand, order, got[demand.job], peers), order)
        for order, demand in enumerate(demands)
        if got[demand.job] < demand.upper
    ]
    heapify(open_)
    while spare > 0 and open_:
        _, order = open_[0]
        demand = demands[order]
        has = got[demand.job]
        # What it lacks only grows beside what is left, so it is not looked at again.
        if has >= demand.upper or demand.lower - has > spare:
            heappop(open_)
            continue
        got[demand.job] = has + 1
        spare -= 1
        heapreplace(open_, (scheduler.prefer(demand, order, has + 1, peers), order))
    return got


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
    "balanced": JobScheduler(_balanced_offer, _balanced_preference, keeps=True),
    "greedy": JobScheduler(_greedy_offer, None),
    "percentage": JobScheduler(_percentage_offer, _percentage_preference),
}
