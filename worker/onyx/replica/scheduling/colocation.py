"""Jobs whose peers sit together: every machine that a colocated job uses has each of its tasks
equally often, so that segments need not leave it.

The unit is a batch, one peer of each task on one machine. A job is given batches on machines; who
of a machine sits on which task is left to the assignment (`placement`). Jobs choose in order of
submission, each first where it sits already. Peers of other jobs may have to move for it, but not
those of grouped tasks whose policy forbids it.

Other than in the original, batches are counted for each machine: nine peers on two machines (5 and
4) are two batches of a job with three tasks, where it counts three and then runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onyx.ids import JobId, PeerId
from onyx.replica.state import NOTHING, Replica

SCHEDULER = "colocated"
PINNING = ("kill", "recover")
"""Flux policies under which a peer may not be taken from its task."""

Machine = str
Batches = Mapping[Machine, int]


def machine_of(replica: Replica, peer: PeerId) -> Machine:
    """The host of a peer's address; its group when it has announced none."""
    address = replica.peer_sites.get(peer, NOTHING).get("address")
    if isinstance(address, str) and address:
        return address.rpartition(":")[0] or address
    return f"group {replica.groups_reverse_index.get(peer, '')}"


def by_machine(replica: Replica, peers: Iterable[PeerId]) -> dict[Machine, list[PeerId]]:
    """Peers of each machine, in their order; machines in the order of their first peers."""
    found: dict[Machine, list[PeerId]] = {}
    for peer in peers:
        found.setdefault(machine_of(replica, peer), []).append(peer)
    return found


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
    """How many batches of a job the machines have, if it had them for itself."""
    return sum(_batches(replica, job, movable(replica, job)).values())


def choose_machines(
    replica: Replica, wanted: Mapping[JobId, int]
) -> tuple[dict[JobId, Batches], dict[JobId, list[PeerId]]]:
    """For each colocated job its batches on machines, no more than wanted, and the peers on these
    machines that it may use."""
    batches: dict[JobId, Batches] = {}
    pools: dict[JobId, list[PeerId]] = {}
    used: dict[Machine, int] = {}
    for job, count in wanted.items():
        size = len(replica.spec(job).tasks)
        mine = by_machine(replica, movable(replica, job))
        room = {machine: len(peers) - used.get(machine, 0) for machine, peers in mine.items()}
        chosen = _choose(_present(replica, job), {m: n // size for m, n in room.items()}, count)
        for machine, number in chosen.items():
            used[machine] = used.get(machine, 0) + number * size
        batches[job] = chosen
        pools[job] = [peer for machine in chosen for peer in mine[machine]]
    return batches, pools


def _choose(present: Batches, room: Batches, count: int) -> dict[Machine, int]:
    """Where the job sits now, then the machines in the order of their peers."""
    chosen: dict[Machine, int] = {}
    for limits in (present, room):
        for machine in room:
            more = min(limits.get(machine, 0), room[machine]) - chosen.get(machine, 0)
            more = min(more, count - sum(chosen.values()))
            if more > 0:
                chosen[machine] = chosen.get(machine, 0) + more
    return chosen


def _present(replica: Replica, job: JobId) -> Batches:
    """Whole batches of the job as it is allocated."""
    allocation = replica.run(job).allocation
    counts = {
        task: _counts(replica, allocation.get(task, ())) for task in replica.spec(job).by_name
    }
    machines = sorted({machine for each in counts.values() for machine in each})
    return {machine: min(each.get(machine, 0) for each in counts.values()) for machine in machines}


def _counts(replica: Replica, peers: Iterable[PeerId]) -> dict[Machine, int]:
    return {machine: len(mine) for machine, mine in by_machine(replica, peers).items()}


def _batches(replica: Replica, job: JobId, peers: Iterable[PeerId]) -> Batches:
    size = len(replica.spec(job).tasks)
    return {m: len(mine) // size for m, mine in by_machine(replica, peers).items()}
