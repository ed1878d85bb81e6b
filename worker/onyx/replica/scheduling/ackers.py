"""Which peers of a job keep the ledger of its trees."""

from __future__ import annotations

from immutables import Map

from onyx.ids import JobId, PeerId, TaskName
from onyx.replica.state import Replica

PERCENTAGE_DEFAULT = 10
"""When the submission says nothing (ours always says something)."""


def choose_ackers(
    replica: Replica, job: JobId, allocation: Map[TaskName, tuple[PeerId, ...]]
) -> tuple[PeerId, ...]:
    """A percentage of the job's peers, rounded up, in the order of their ids.

    Peers on exempt tasks are none; those on the machine of such a peer come last.
    """
    total = sum(len(peers) for peers in allocation.values())
    percentage = replica.acker_percentage.get(job, PERCENTAGE_DEFAULT)
    wanted = -(-percentage * total // 100)
    exempt = _exempt_tasks(replica, job)
    excluded = [peer for task in exempt for peer in allocation.get(task, ())]
    machines = {_machine(replica, peer) for peer in excluded} - {None}
    candidates = sorted(
        (peer for task, peers in allocation.items() if task not in exempt for peer in peers),
        key=lambda peer: (_machine(replica, peer) in machines, peer),
    )
    return tuple(candidates[:wanted])


def _exempt_tasks(replica: Replica, job: JobId) -> frozenset[TaskName]:
    exempt = set(replica.exempt_tasks.get(job, ()))
    if replica.acker_exclude_inputs.get(job):
        exempt.update(replica.input_tasks.get(job, ()))
    if replica.acker_exclude_outputs.get(job):
        exempt.update(replica.output_tasks.get(job, ()))
    return frozenset(exempt)


def _machine(replica: Replica, peer: PeerId) -> object:
    """The host of a peer's address; None when it has announced none."""
    address = replica.peer_sites.get(peer, Map()).get("address")
    return address.rpartition(":")[0] or address if isinstance(address, str) else address
