"""Which peers of a job keep the ledger of its trees."""

from __future__ import annotations

from immutables import Map

from onyx.ids import JobId, PeerId, TaskName
from onyx.replica.spec import JobSpec
from onyx.replica.state import Replica

PERCENTAGE_DEFAULT = 10
"""When the submission says nothing (ours always says something)."""


def choose_ackers(
    replica: Replica, job: JobId, allocation: Map[TaskName, tuple[PeerId, ...]]
) -> tuple[PeerId, ...]:
    """Peers of the job, in the order of their ids: so many as its submission says, or a percentage
    of all, rounded up.

    Peers on exempt tasks are none; those on the machine of such a peer come last.
    """
    spec = replica.spec(job)
    wanted = _wanted(spec, sum(len(peers) for peers in allocation.values()))
    exempt = _exempt_tasks(spec)
    excluded = [peer for task in exempt for peer in allocation.get(task, ())]
    machines = {_machine(replica, peer) for peer in excluded} - {None}
    candidates = sorted(
        (peer for task, peers in allocation.items() if task not in exempt for peer in peers),
        key=lambda peer: (_machine(replica, peer) in machines, peer),
    )
    return tuple(candidates[:wanted])


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
