"""Which partitions of an input each peer of its task reads: a run of them, by the order of slots.
If the runs cannot be equal, the first ones have one more.

Neighbours stay together, as the original has it for Kafka, so that somebody who knows the number of
a peer knows what it reads.
"""

from __future__ import annotations


def partitions_of(rank: int, partitions: int, peers: int) -> range:
    """The partitions, from 0 on, of the peer with this number among the peers of the task."""
    each, more = divmod(partitions, peers)
    first = rank * each + min(rank, more)
    return range(first, first + each + (rank < more))


def rank_of(partition: int, partitions: int, peers: int) -> int:
    """The number of the peer that reads a partition."""
    assert 0 <= partition < partitions, "partitions are numbered from 0 on"
    each, more = divmod(partitions, peers)
    longer = more * (each + 1)
    if partition < longer:
        return partition // (each + 1)
    return more + (partition - longer) // each
