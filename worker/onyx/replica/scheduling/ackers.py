"""Which peers of a job answer for the completion of segment trees."""

from __future__ import annotations

from collections.abc import Mapping

from onyx.ids import JobId, PeerId, TaskName
from onyx.replica.state import Replica


def choose_ackers(
    replica: Replica, job: JobId, allocation: Mapping[TaskName, tuple[PeerId, ...]]
) -> tuple[PeerId, ...]:
    """A percentage of the job's peers, at least one, in the order of their ids.

    Peers of exempt tasks do not ack; those that share a machine with one come last.
    """
    exempt = set(replica.exempt_tasks.get(job, ()))
    if replica.acker_exclude_inputs.get(job):
        exempt.update(replica.input_tasks.get(job, ()))
    if replica.acker_exclude_outputs.get(job):
        exempt.update(replica.output_tasks.get(job, ()))
    peers = [peer for task in sorted(allocation) for peer in allocation[task]]
    candidates = sorted(
        peer for task, there in allocation.items() if task not in exempt for peer in there
    )
    burdened = {
        _machine(replica, peer)
        for task in exempt.intersection(allocation)
        for peer in allocation[task]
    }
    candidates.sort(key=lambda peer: _machine(replica, peer) in burdened)
    percentage = replica.acker_percentage.get(job, 1)
    count = -(-percentage * len(peers) // 100)
    return tuple(candidates[:count])


def _machine(replica: Replica, peer: PeerId) -> str:
    site = replica.peer_sites.get(peer)
    return str(site.get("address", peer)) if site else str(peer)
