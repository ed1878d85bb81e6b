"""Lineage over one hop: ids of what a peer sends for a batch, and what it acks of the batch.

A segment that is the only child of its parent keeps the parent's id, so passing segments on one to
one changes no tree: nothing is mixed and nothing is acked. Only a parent with several children,
over all edges together, gives them ids of their own; an edge that leads back always does. The ack
of a segment consumed is its own id XOR the ids of its children; an input task consumes nothing, so
it acks the children only.

Invariant: each id is in the XOR of its tree twice, once when the segment is produced and once when
it is consumed. So the XOR is zero exactly when every segment of the tree has been consumed.

Giving every child an id of its own was rejected: it costs a mix and two acks a segment and hop,
half of what acking costs in a chain of tasks, and accounts for nothing more. Live segments of one
tree have different ids either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onyx.base.runs import NONE, Numbers, array_of, taken
from onyx.ledger.lineage import U64, Indices, child_ids, mix


class EdgeShare(NamedTuple):
    """What goes along one edge, by where it comes from."""

    edge: int
    """Number of the edge (`workflow.edge_number`)."""
    parents: Indices | None
    """For each segment the index in the batch of its parent, never falling; None: i-th of i-th."""
    child_index: Indices | None
    """Index among the children of the same parent; None: 0 for all."""
    back: bool = False
    """Whether the edge leads back: a segment that comes again is another one each time."""


class Hop(NamedTuple):
    """What comes of a batch."""

    ids: list[Numbers]
    """For each share, the ids of its segments."""
    reported: Indices | None
    """Which consumed segments are reported, increasing; None: all."""
    values: Numbers
    """What is reported for each of those. Never 0, but for an input's segments without children:
    0 would complete the tree of a root that its acker does not know yet."""


def hop(
    ids: Numbers,
    shares: Sequence[EdgeShare],
    emitted: bool,
    withheld: bool = False,
    noted: Sequence[int] = (),
) -> Hop:
    """The ids of the children of a batch, and the report about it.

    Args:
        ids: of the batch.
        shares: of the edges that get anything.
        emitted: the batch comes from the source itself and not from another peer.
        withheld: the ack of the batch is sent later. Until then no tree may be complete, whatever
            becomes of the children: they all get ids of their own, and everything is acked.
        noted: indices of segments of which something is said before their acks. So there has to be
            an ack of each: their children get ids of their own.
    """
    for _, parents, _, _ in shares:  # which never fall
        assert parents is None or not len(parents) or parents[-1] < len(ids), "of this batch"
    if withheld:
        return _withheld(ids, shares)
    back = any(share.back for share in shares)
    if len(shares) == 1 and shares[0].child_index is None and not back and not noted:
        return _filtered(ids, shares[0].parents, emitted)
    children = _children(len(ids), shares)
    if back or noted or (children > 1).any():
        sole = children == 1
        sole[list(noted)] = False
        return _fan_out(array_of(ids), shares, sole, emitted)
    sent = [_of_parents(ids, share) for share in shares]
    if emitted:
        return Hop(sent, None, array_of(ids) * children.astype(np.uint64))
    childless = np.flatnonzero(children == 0)
    return Hop(sent, childless, taken(ids, childless))


_NOTHING = np.empty(0, dtype=np.intp)


def _filtered(ids: Numbers, parents: Indices | None, emitted: bool) -> Hop:
    """Each segment has one child or none, as most functions leave them."""
    # An only child keeps the id of its parent: consumed XOR produced is 0, so there is nothing to
    # report. Of a batch in which each segment has one child that is all of it.
    if parents is None:
        return Hop([ids], None, ids) if emitted else Hop([ids], _NOTHING, NONE)
    sent = taken(ids, parents)
    if emitted:
        values = np.zeros(len(ids), dtype=np.uint64)
        values[parents] = sent
        return Hop([sent], None, values)
    with_child = np.zeros(len(ids), dtype=np.bool_)
    with_child[parents] = True
    childless = (~with_child).nonzero()[0]
    return Hop([sent], childless, taken(ids, childless))


def _children(count: int, shares: Sequence[EdgeShare]) -> Indices:
    """How many children each segment of the batch has."""
    children = np.zeros(count, dtype=np.intp)
    for share in shares:
        if share.parents is None:
            children += 1
        else:
            children += np.bincount(share.parents, minlength=count)
    return children


def _of_parents(ids: Numbers, share: EdgeShare) -> Numbers:
    return ids if share.parents is None else taken(ids, share.parents)


def _fan_out(ids: U64, shares: Sequence[EdgeShare], sole: NDArray[np.bool_], emitted: bool) -> Hop:
    """`sole`: whose only child keeps the id of its parent."""
    values = np.zeros_like(ids) if emitted else ids.copy()
    some_only = bool(sole.any())
    sent: list[Numbers] = []
    for share in shares:
        kept = array_of(_of_parents(ids, share))
        made = child_ids(kept, share.edge, share.child_index)
        # What goes round a loop comes to this task again: under its old id it would be a repeat.
        if some_only and not share.back:
            only = sole if share.parents is None else sole[share.parents]
            made = np.where(only, kept, made)
        _xor_into(values, made, share.parents)
        sent.append(made)
    if emitted:
        return Hop(sent, None, values)
    changed = np.flatnonzero(values)
    return Hop(sent, changed, values[changed])


def split_values(ids: Numbers) -> tuple[Numbers, Numbers]:
    """What two parties report of segments without children, so that a tree is complete only when
    both have."""
    mine = array_of(ids)
    first = mix(mine.copy())
    return first, mine ^ first


def _withheld(ids: Numbers, shares: Sequence[EdgeShare]) -> Hop:
    if not shares:
        return Hop([], None, ids)
    values = array_of(ids).copy()
    sent: list[Numbers] = []
    for share in shares:
        made = child_ids(array_of(_of_parents(ids, share)), share.edge, share.child_index)
        _xor_into(values, made, share.parents)
        sent.append(made)
    return Hop(sent, None, values)


def _xor_into(values: U64, ids: U64, parents: Indices | None) -> None:
    if parents is None:
        values ^= ids
        return
    if not len(parents):
        return
    changes = (parents[1:] != parents[:-1]).nonzero()[0]
    starts = np.concatenate((_FIRST, changes + 1))
    values[parents[starts]] ^= np.bitwise_xor.reduceat(ids, starts)


_FIRST = np.zeros(1, dtype=np.intp)
