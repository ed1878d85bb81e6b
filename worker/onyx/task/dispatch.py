"""From leaves to the outbox: flow conditions, lineage, groups, and what is told to the ackers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onyx.flow.apply import Leaves
from onyx.flow.batch import U64, Batch, Indices, Segment
from onyx.flow.grouping import slots_of_shards
from onyx.flow.routing import Outgoing, Routed, route_batch
from onyx.ledger.hop import Hop, Share, hop
from onyx.ledger.lineage import mix
from onyx.task.failures import Failure, blamed
from onyx.task.phases import Kind, Phase
from onyx.task.state import Task
from onyx.task.wiring import ChildTask


def send(task: Task, batch: Batch, leaves: Leaves) -> None:
    """Send the leaves of a batch on, and report the batch."""
    windowing = task.live.windowing
    if task.static.entry.type == "reduce":
        raise_failures(task, leaves, leaves.failures)
        routed = Routed({})
    else:
        routed = _route(task, batch, leaves)
    made = _put_all(task, batch, routed, task.kind is Kind.INPUT, windowing is not None)
    if made is None or batch.roots is None:
        return
    roots, values = _reported(task, batch.roots, made, routed.retries)
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
        if child is None:
            routed = _route(task, batch, Leaves(batch.segments))
        else:
            routed = Routed({child: Outgoing(batch.segments)})
        made = _put_all(task, batch, routed, emitted=True)
        if made is not None and batch.roots is not None:
            task.live.acks.add(*_reported(task, batch.roots, made, routed.retries))


def _route(task: Task, batch: Batch, leaves: Leaves) -> Routed:
    static = task.static
    routed = route_batch(static.conditions, static.sends_to, static.event, batch.segments, leaves)
    raise_failures(task, leaves, routed.failures)
    return routed


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
        for child, segments in _own(shares, routed.shared):
            put_to_child(task, child, Batch(segments))
        return None
    lineage = [Share(child.edge, share.parents, share.child_index) for child, share in shares]
    made = hop(batch.ids, lineage, emitted, withheld)
    own = _own(shares, routed.shared)
    for (child, segments), share, ids in zip(own, lineage, made.ids, strict=True):
        roots = batch.roots if share.parents is None else batch.roots[share.parents]
        put_to_child(task, child, Batch(segments, roots, ids))
    return made


def _own(
    shares: Sequence[tuple[ChildTask, Outgoing]], shared: bool
) -> Iterator[tuple[ChildTask, list[Segment]]]:
    """Each child's segments, its own to change; copied only if some go to several children."""
    for number, (child, share) in enumerate(shares):
        copied = shared and number > 0
        yield child, [dict(each) for each in share.segments] if copied else share.segments


def _reported(task: Task, roots: U64, made: Hop, retries: list[int]) -> tuple[U64, U64]:
    """Roots and values to tell of a batch; a root that is to be replayed is not reported."""
    values = made.values
    if retries:
        assert task.live.owners is not None, "no batch is read before the job is ready"
        task.live.retries.extend(task.live.owners.split(np.unique(roots[retries])))
        rows = np.arange(len(roots)) if made.reported is None else made.reported
        wanted = np.isin(rows, retries, invert=True)
        return roots[rows[wanted]], values[wanted]
    return (roots if made.reported is None else roots[made.reported]), values


def put_to_child(task: Task, child: ChildTask, batch: Batch) -> None:
    """To any peer of the child, or split by the slot of each segment's group or id."""
    count = len(child.sites)
    slots = _slots(task, child, batch) if count > 1 else None
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


def _slots(task: Task, child: ChildTask, batch: Batch) -> Indices | None:
    grouping = task.static.groupings.get(child.task)
    if grouping is not None:
        return grouping.slots_of(batch.segments, len(child.sites))
    if child.by_id and batch.ids is not None:
        return slots_of_shards(mix(batch.ids.copy()), len(child.sites))
    return None


def raise_failures(task: Task, leaves: Leaves, failures: list[tuple[int, Exception]]) -> None:
    """The first of the exceptions that nothing took care of: of the function, or of a condition."""
    if not failures:
        return
    index, error = failures[0]
    segment = task.batch.segments[index] if task.batch is not None else None
    if not any(error is raised for _, raised in leaves.failures):
        detail = blamed("a flow condition", error)
        raise Failure(Phase.ROUTE.value, error, detail, len(failures), segment)
    count = f" ({len(failures)} segments of the batch failed)" if len(failures) > 1 else ""
    detail = (
        f"{blamed(_maker(task), error)}{count}; mend it, or route its exceptions with a flow "
        "condition that has thrownException: true"
    )
    raise Failure(Phase.APPLY_FN.value, error, detail, len(failures), segment)


def _maker(task: Task) -> str:
    """What makes the segments of a task."""
    entry = task.static.entry
    return entry.fn or f"plugin {entry.plugin}"
