"""Jobs whose peers sit together: every process that a colocated job uses has each of its tasks
equally often, so that segments need not leave it.

The unit is a batch, one peer of each task in one process. A job is given batches in processes; who
of a process sits on which task is left to the assignment (`placement`). Jobs choose in order of
submission, each first where it sits already. Peers of other jobs may have to move for it, but not
those of grouped tasks whose policy forbids it.

Other than in the original, batches are counted for each process: nine peers in two processes (5 and
4) are two batches of a job with three tasks, where it counts three and then runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onyx.ids import GroupId, JobId, PeerId
from onyx.replica.scheduling.dealing import by_group
from onyx.replica.state import Replica

SCHEDULER = "colocated"
PINNING = ("kill", "recover")
"""Flux policies under which a peer may not be taken from its task."""

Batches = Mapping[GroupId, int]


def movable(replica: Replica, job: JobId, taken: Iterable[PeerId] = ()) -> list[PeerId]:
    """Peers that `job` may have: those that nobody else has for good."""
    gone = {*taken}
    for other in replica.jobs:
        tasks = replica.spec(other).by_name
        for task, peers in replica.run(other).allocation.items():
            if other != job and tasks[task].flux_policy in PINNING:
                gone.update(peers)
    return [peer for peer in replica.peers if peer not in gone]


def count_batches(replica: Replica, job: JobId) -> int:
    """How many batches of a job the groups have, if it had them for itself."""
    return sum(_batches(replica, job, movable(replica, job)).values())


def choose_groups(
    replica: Replica, wanted: Mapping[JobId, int]
) -> tuple[dict[JobId, Batches], dict[JobId, list[PeerId]]]:
    """For each colocated job its batches on groups, no more than wanted, and the peers on these
    groups that it may use."""
    batches: dict[JobId, Batches] = {}
    pools: dict[JobId, list[PeerId]] = {}
    used: dict[GroupId, int] = {}
    for job, count in wanted.items():
        size = len(replica.spec(job).tasks)
        mine = by_group(replica, movable(replica, job))
        room = {group: len(peers) - used.get(group, 0) for group, peers in mine.items()}
        chosen = _choose(_present(replica, job), {g: n // size for g, n in room.items()}, count)
        for group, number in chosen.items():
            used[group] = used.get(group, 0) + number * size
        batches[job] = chosen
        pools[job] = [peer for group in chosen for peer in mine[group]]
    return batches, pools


def _choose(present: Batches, room: Batches, count: int) -> dict[GroupId, int]:
    """Where the job sits now, then the groups in the order of their peers."""
    chosen: dict[GroupId, int] = {}
    for limits in (present, room):
        for group in room:
            more = min(limits.get(group, 0), room[group]) - chosen.get(group, 0)
            more = min(more, count - sum(chosen.values()))
            if more > 0:
                chosen[group] = chosen.get(group, 0) + more
    return chosen


def _present(replica: Replica, job: JobId) -> Batches:
    """Whole batches of the job as it is allocated."""
    allocation = replica.run(job).allocation
    counts = {
        task: _counts(replica, allocation.get(task, ())) for task in replica.spec(job).by_name
    }
    groups = sorted({group for each in counts.values() for group in each})
    return {group: min(each.get(group, 0) for each in counts.values()) for group in groups}


def _counts(replica: Replica, peers: Iterable[PeerId]) -> dict[GroupId, int]:
    return {group: len(mine) for group, mine in by_group(replica, peers).items()}


def _batches(replica: Replica, job: JobId, peers: Iterable[PeerId]) -> Batches:
    size = len(replica.spec(job).tasks)
    return {g: len(mine) // size for g, mine in by_group(replica, peers).items()}
