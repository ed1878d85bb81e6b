"""Peers of one group can receive on all their channels of an allocation version of their job.

A group writes one entry for all its peers on a job, and for several jobs at once when many are
wired together (`peer/gathering`), so the log grows with groups and not with peers. A signal for
another version than the present one is late and means nothing: its channels are gone.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from onyx.ids import JobId, PeerId, Position
from onyx.replica.command import Command, Peer
from onyx.replica.spec import Job
from onyx.replica.state import Replica

PEERS_MAX = 2_000
"""In one entry, whose size is limited; a group with more writes several."""


class ReadyPeers(Struct, frozen=True, forbid_unknown_fields=True):
    """Peers that are ready for an allocation version of their job."""

    job: Job
    version: int
    peers: Annotated[tuple[Peer, ...], Meta(min_length=1, max_length=PEERS_MAX)]


class SignalReady(Command, frozen=True):
    """Peers of a group are ready."""

    jobs: Annotated[tuple[ReadyPeers, ...], Meta(min_length=1, max_length=PEERS_MAX)]

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for peers that are not on the job, and for another version than the present
        one."""
        for ready in self.jobs:
            replica = _mark(replica, ready)
        return replica


def _mark(replica: Replica, ready: ReadyPeers) -> Replica:
    run = replica.run(ready.job)
    if ready.version != run.allocation_version:
        return replica
    allocated = frozenset(peer for peers in run.allocation.values() for peer in peers)
    news = {peer: None for peer in ready.peers if peer in allocated and peer not in run.ready}
    if not news:
        return replica
    state = replica.peer_state
    for peer in news:
        if state.get(peer, "idle") == "idle":
            state = state.set(peer, "active")
    run = replace(run, ready=run.ready.update(news))
    record = replace(replica.records[ready.job], run=run)
    assert len(run.ready) <= len(allocated), "only peers of a job are ready for it"
    assert ready.version >= record.ready_version, "allocation versions only grow"
    if run.is_ready:
        record = replace(record, ready_version=ready.version)
    records = replica.records.set(ready.job, record)
    return replace(replica, peer_state=state, records=records)


def signal(job: JobId, version: int, *peers: PeerId) -> SignalReady:
    """The command about one job."""
    return SignalReady(jobs=(ReadyPeers(job, version, peers),))
