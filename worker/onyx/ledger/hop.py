"""What one peer reports to the ackers for a batch it is done with.

For each segment consumed: its own id XOR the ids of everything that was sent for it. An input task
consumes nothing, so it starts from zeros (`emitted_values`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from onyx.ledger.lineage import U64, Indices

Produced = tuple[U64, Indices | None]
"""Ids sent along one edge and, for each, the index of the consumed segment, never falling; None
when the i-th was made of the i-th."""


def ack_values(consumed_ids: U64, produced: Iterable[Produced]) -> U64:
    """One value a consumed segment, to be folded by root and sent to the ackers."""
    values = consumed_ids.copy()
    for ids, parents in produced:
        _xor_into(values, ids, parents)
    return values


def emitted_values(count: int, produced: Iterable[Produced]) -> U64:
    """The same for an input task, whose `count` segments were consumed from nowhere. A segment that
    was sent nowhere has 0, which completes it at the acker."""
    return ack_values(np.zeros(count, dtype=np.uint64), produced)


def _xor_into(values: U64, ids: U64, parents: Indices | None) -> None:
    if parents is None:
        assert len(ids) == len(values)
        values ^= ids
        return
    if len(ids) == 0:
        return
    starts = np.flatnonzero(parents[1:] != parents[:-1]) + 1
    if len(starts) + 1 == len(parents):
        values[parents] ^= ids
        return
    starts = np.concatenate(([0], starts))
    values[parents[starts]] ^= np.bitwise_xor.reduceat(ids, starts)
