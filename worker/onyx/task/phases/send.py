"""From the verdict on a batch to the outbox: lineage, groups, and what is told to the ackers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onyx.flow.batch import U64, Batch, Indices, Segment
from onyx.flow.grouping import slots_of_shards
from onyx.flow.routed import Outgoing, Routed
from onyx.ledger.hop import Hop, Share, hop
from onyx.ledger.lineage import mix
from onyx.task.channels.wiring import ChildTask
from onyx.task.phases.route import decide_emitted
from onyx.task.phases.table import Kind
from onyx.task.task import Task


def send(task: Task, batch: Batch, routed: Routed) -> None:
    """Send what was made of a batch on, and report the batch."""
    windowing = task.live.windowing
    made = _put_all(task, batch, routed, task.kind is Kind.INPUT, windowing is not None)
    if made is None or batch.roots is None:
        return
    roots, values = _reported(task, batch.roots, made, routed)
    if windowing is None:
        task.live.acks.add(roots, values)
    else:
        windowing.withhold(roots, values)


def send_emissions(task: Task) -> None:
    """Send what triggers have emitted and the state log has: as the source of new trees."""
    windowing = task.live.windowing
    if windowing is None or not windowing.emissions.waiting:
        return
    for child, batch in windowing.emissions.read(task.static.entry.batch_size):
        routed = decide_emitted(task, batch, child)
        made = _put_all(task, batch, routed, emitted=True)
        if made is not None and batch.roots is not None:
            task.live.acks.add(*_reported(task, batch.roots, made, routed))


def _put_all(
    task: Task, batch: Batch, routed: Routed, emitted: bool, withheld: bool = False
) -> Hop | None:
    """Put each child's share into the outbox; what is to be reported, if anything is."""
    shares = [
        (child, routed.to[child.task])
        for child in task.live.wiring.children
        if child.task in routed.to and len(routed.to[child.task])
    ]
    if batch.roots is None or batch.ids is None:
        for (child, segments), (_, share) in zip(_own(shares, routed.shared), shares, strict=True):
            put_to_child(task, child, Batch(segments), share.hashes)
        return None
    lineage = [Share(child.edge, share.parents, share.child_index) for child, share in shares]
    made = hop(batch.ids, lineage, emitted, withheld)
    own = _own(shares, routed.shared)
    for (child, segments), (_, share), ids in zip(own, shares, made.ids, strict=True):
        roots = batch.roots if share.parents is None else batch.roots[share.parents]
        put_to_child(task, child, Batch(segments, roots, ids), share.hashes)
    return made


def _own(
    shares: Sequence[tuple[ChildTask, Outgoing]], shared: bool
) -> Iterator[tuple[ChildTask, list[Segment]]]:
    """Each child's segments, its own to change; copied only if some go to several children."""
    for number, (child, share) in enumerate(shares):
        copied = shared and number > 0
        yield child, [dict(each) for each in share.segments] if copied else share.segments


def _reported(task: Task, roots: U64, made: Hop, routed: Routed) -> tuple[U64, U64]:
    """Roots and values to tell of a batch; a root that is to be replayed is not reported."""
    values, retries = made.values, routed.retries
    if retries:
        ask_for_retries(task, roots[retries], routed.retries_max)
        rows = np.arange(len(roots)) if made.reported is None else made.reported
        wanted = np.isin(rows, retries, invert=True)
        return roots[rows[wanted]], values[wanted]
    return (roots if made.reported is None else roots[made.reported]), values


def ask_for_retries(task: Task, roots: U64, retries_max: Sequence[int]) -> None:
    """Have the owners of these roots read them again, each at most so many times."""
    owners = task.live.owners
    assert owners is not None, "no batch is read before the job is ready"
    limits = np.array(retries_max)
    for limit in sorted(set(retries_max)):
        parcels = owners.split(np.unique(roots[limits == limit]))
        task.live.retries.extend((site, part, limit) for site, part in parcels)


def put_to_child(task: Task, child: ChildTask, batch: Batch, hashes: U64 | None = None) -> None:
    """To any peer of the child, or split by the slot of each segment's group or id.

    Args:
        hashes: of the group keys, if they are known.
    """
    count = len(child.sites)
    slots = _slots(task, child, batch, hashes) if count > 1 else None
    if slots is None:
        task.live.outbox.put(child, batch)
        return
    for slot, site in enumerate(child.sites):
        mine = (slots == slot).nonzero()[0]
        if len(mine):
            segments: list[Segment] = [batch.segments[index] for index in mine.tolist()]
            roots = batch.roots[mine] if batch.roots is not None else None
            ids = batch.ids[mine] if batch.ids is not None else None
            task.live.outbox.put_to(site, Batch(segments, roots, ids))


def _slots(task: Task, child: ChildTask, batch: Batch, hashes: U64 | None) -> Indices | None:
    if hashes is not None:
        return slots_of_shards(hashes, len(child.sites))
    grouping = task.static.groupings.get(child.task)
    if grouping is not None:
        return grouping.slots_of(batch.segments, len(child.sites))
    if child.by_id and batch.ids is not None:
        return slots_of_shards(mix(batch.ids.copy()), len(child.sites))
    return None
