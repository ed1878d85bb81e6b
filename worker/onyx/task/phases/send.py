"""SEND: segments with their lineage go to the outbox, or to the plugin of an output.

What a batch consumes and produces is folded into values for the ackers (`ledger/hop`). A windowed
task withholds them until its state log has what the batch changed.
"""

from __future__ import annotations

import numpy as np

from onyx.base.runs import array_of, taken
from onyx.codec.returns import size_bytes
from onyx.flow.batch import Batch, copies_of
from onyx.flow.laps import laps_of
from onyx.flow.routed import Outgoing, Routed
from onyx.ledger.hop import Hop, Share, hop
from onyx.ledger.returns import no_value, part_of
from onyx.program.phases import Phase
from onyx.program.program import goes_on_in_trees
from onyx.program.route import route_emitted
from onyx.task.channels.combining import put_combined
from onyx.task.channels.dealing import put_to_child
from onyx.task.channels.wiring import ChildTask
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.work import Work
from onyx.task.phases.controls import pass_controls
from onyx.task.phases.retries import acked
from onyx.task.phases.write import write
from onyx.task.state.keeper import StateKeeper
from onyx.task.table import ADVANCED, Answer

_Share = tuple[ChildTask, Outgoing]


def send_batch(runtime: Runtime, allocation: Allocation, work: Work) -> Answer:
    """Send or write what was made of the batch; then what triggers have emitted, then controls."""
    if work.batch is not None and work.leaves is not None:
        assert work.routed is not None, "the phase before"
        if runtime.sink is not None and not work.own:
            runtime.sink.choose(work.batch.upstream)
            if not write(runtime.program, runtime.sink, allocation, work):
                return Phase.AFTER_BATCH
            _send_elsewhere(runtime, allocation, work.batch, work.routed)
        else:
            _send(runtime, allocation, work.batch, work.routed)
        # Behind what may be refused and done again; acks leave later than this, in any case.
        _give_back(runtime, allocation, work, work.batch, work.routed)
    if allocation.keeper is not None:
        _send_emissions(runtime, allocation, allocation.keeper)
    pass_controls(runtime, allocation, work)
    return ADVANCED


def _give_back(
    runtime: Runtime, allocation: Allocation, work: Work, batch: Batch, routed: Routed
) -> None:
    """What the function gives back, and what is said of segments, goes before the acks of the
    batch."""
    _tell(allocation, batch, routed)
    if not work.returned or batch.roots is None:
        return
    aggregators, roots = runtime.program.job.ack_returns, array_of(batch.roots)
    for at, key, value, error in work.returned:
        part = no_value(error)
        if not error:
            part = part_of(aggregators[key], value, size_bytes(value))
        allocation.acks.give_back(int(roots[at]), {key: part})


def _tell(allocation: Allocation, batch: Batch, routed: Routed) -> None:
    if routed.notes and batch.roots is not None:
        roots = array_of(batch.roots)
        for at, parts in routed.notes.items():
            allocation.acks.give_back(int(roots[at]), parts)


def _send(runtime: Runtime, allocation: Allocation, batch: Batch, routed: Routed) -> None:
    """Send what was made of a batch on, and ack the batch."""
    keeper = allocation.keeper
    begins = runtime.source is not None
    # What a function gives back is on its way when it acks. So it has to ack each batch, or a tree
    # could be complete before; and always, because ids are the same on each replay.
    gives_back = bool(runtime.program.job.ack_returns) and not begins
    held = keeper is not None and not goes_on_in_trees(runtime.program)
    withheld = held or gives_back
    made = _put_all(runtime, allocation, batch, routed, begins, withheld)
    if made is None or batch.roots is None:
        return
    roots, values = acked(allocation, batch.roots, made, routed)
    if keeper is not None and held:
        keeper.withhold(roots, values)
    else:
        allocation.acks.add(roots, values)


def _send_elsewhere(runtime: Runtime, allocation: Allocation, batch: Batch, routed: Routed) -> None:
    """Send what goes on in place of segments that failed at what writes the others."""
    parents = routed.parents_elsewhere()
    if not parents:
        return
    failed, mine = batch.take(np.array(parents)), routed.of_parents(parents)
    withheld = bool(runtime.program.job.ack_returns)
    made = _put_all(runtime, allocation, failed, mine, begins=False, withheld=withheld)
    if made is not None and failed.roots is not None:
        allocation.acks.add(*acked(allocation, failed.roots, made, mine))


def _send_emissions(runtime: Runtime, allocation: Allocation, keeper: StateKeeper) -> None:
    """Send what triggers, timers, functions with state, processors and joins have made and the
    state log has: as the source of new trees. It counts when it is sent for the first time."""
    if not keeper.emissions.waiting:
        return
    program, emissions = runtime.program, keeper.emissions
    before, batches = emissions.sent, emissions.read(runtime.sizing.emitted_max)
    program.metrics.batch(0, emissions.sent - before)
    for child, batch in batches:
        answering = allocation.answering
        routed = route_emitted(program, allocation.group_checks, batch, child, answering)
        made = _put_all(runtime, allocation, batch, routed, begins=True)
        _tell(allocation, batch, routed)
        if made is not None and batch.roots is not None:
            allocation.acks.add(*acked(allocation, batch.roots, made, routed))


def _put_all(
    runtime: Runtime,
    allocation: Allocation,
    batch: Batch,
    routed: Routed,
    begins: bool,
    withheld: bool = False,
) -> Hop | None:
    """Put each child's share into the outbox.

    Args:
        begins: the batch begins new trees.
        withheld: the ack of the batch itself comes later.

    Returns:
        Ids of what was sent and values to ack; None for segments without lineage.
    """
    program = runtime.program
    outbox, event_time = allocation.outbox, allocation.event_time
    groupings = program.routes.groupings
    watermark = None if event_time is None else event_time.sent_ms
    shares, loose = _shares(allocation, batch, routed, program.entry.anchored)
    for child, share in loose:
        sent = Batch(share.segments, keys=share.keys)
        put_to_child(outbox, groupings, child, sent, share.hashes)
    if batch.roots is None or batch.ids is None:
        return None
    lineage = [
        Share(child.edge, share.parents, share.child_index, child.back) for child, share in shares
    ]
    made = hop(batch.ids, lineage, begins, withheld, sorted(routed.notes))
    for (child, share), ids in zip(shares, made.ids, strict=True):
        roots = batch.roots if share.parents is None else taken(batch.roots, share.parents)
        laps = None
        if child.laps is not None:
            laps = laps_of(batch.laps, len(batch), share.parents, child.laps)
        sent = Batch(share.segments, roots, ids, share.keys, laps)
        combiner = runtime.combiners.get(child.task)
        put_combined(outbox, combiner, groupings, child, sent, share.hashes, watermark)
    return made


def _shares(
    allocation: Allocation, batch: Batch, routed: Routed, anchored: bool
) -> tuple[list[_Share], list[_Share]]:
    """What each child gets of the trees of the batch, and what it gets that is accounted for by
    nobody. Segments that several get are copies of their own."""
    shares: list[_Share] = []
    loose: list[_Share] = []
    for child in allocation.wiring.children:
        mine = shares if anchored and batch.roots is not None else loose
        mine += [(child, outgoing) for outgoing in routed.shares_of(child.task)]
        loose += [(child, outgoing) for outgoing in routed.loose_of(child.task)]
    if routed.shared:
        for _, outgoing in [*shares, *loose][1:]:
            outgoing.segments = copies_of(outgoing.segments)
    return shares, loose
