"""Dealing a batch to the peers of a child task: by group, by id, or to whoever has room."""

from __future__ import annotations

from collections.abc import Mapping

from onyx.base.runs import array_of
from onyx.flow.batch import U64, Batch, Indices
from onyx.flow.groups.grouping import Grouping
from onyx.flow.groups.keys import slots_of_shards
from onyx.ledger.lineage import mix
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import ChildTask

Groupings = Mapping[str, Grouping]
"""By child task, of those that group."""


def put_to_child(
    outbox: Outbox, groupings: Groupings, child: ChildTask, batch: Batch, hashes: U64 | None = None
) -> None:
    """Put a batch into the outbox: for any peer of the child, or split by the slot of each
    segment's group or id.

    Args:
        groupings: of the children that group.
        hashes: of the group keys, if they are known.
    """
    count = len(child.sites)
    slots = slots_of(groupings, child, batch, hashes) if count > 1 else None
    if slots is None:
        outbox.put(child, batch)
        return
    for slot, site in enumerate(child.sites):
        mine = (slots == slot).nonzero()[0]
        if len(mine):
            outbox.put_to(site, batch.take(mine))


def slots_of(
    groupings: Groupings, child: ChildTask, batch: Batch, hashes: U64 | None
) -> Indices | None:
    """For each segment the slot of the peer that gets it; None: any peer may."""
    if hashes is not None:
        return slots_of_shards(hashes, len(child.sites))
    grouping = groupings.get(child.task)
    if grouping is not None:
        return grouping.slots_of(batch.segments, len(child.sites))
    if child.by_id and batch.ids is not None:
        return slots_of_shards(mix(array_of(batch.ids).copy()), len(child.sites))
    return None
