"""SEND, WRITE_BATCH: what was made of a batch goes to the outbox with its lineage, or to the plugin
of an output; then destinations take it.

What a batch consumes and produces is folded into values for the ackers (`ledger/hop`). A task with
state withholds them until its state log has what the batch changed. Where a function or a flow
condition asks for a retry, the owner of the root is asked to read it again, and the root is not
acked. Control items (END, FLUSH, watermarks and epochs) go on behind the batch that they came
with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onyx.base.runs import Numbers, array_of, taken
from onyx.base.seams import Clock
from onyx.codec.values import size_bytes
from onyx.errors import (
    Fenced,
    InvariantViolated,
    OutputFailed,
    StateError,
    Unavailable,
    WorkLost,
)
from onyx.flow.batch import Batch, chosen_by, copies_of
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Outgoing, Routed, laps_of
from onyx.ledger.hop import EdgeShare, Hop, hop, split_values
from onyx.ledger.returns import no_value, part_of
from onyx.program.batch_work import answer_or_raise, route_emitted
from onyx.program.outcomes import notes_of
from onyx.program.phases import Phase
from onyx.program.program import Program, goes_on_in_trees
from onyx.task.channels.combining import put_combined
from onyx.task.channels.outbox import put_to_child
from onyx.task.channels.wiring import ChildTask
from onyx.task.parts import Allocation, Runtime, Work
from onyx.task.sink.sink import Sink
from onyx.task.state.keeper import StateKeeper
from onyx.task.suspects import take_apart
from onyx.task.table import ADVANCED, WAITING, Answer
from onyx.task.upkeep import follow, make_answers_durable
from onyx.telemetry.catalog import WATERMARK
from onyx.transport.interface import FLUSH, ControlKind, Transport

_Share = tuple[ChildTask, Outgoing]

_NOT_OF_SEGMENTS = (Unavailable, Fenced, WorkLost, OutputFailed, StateError, InvariantViolated)
"""Failures that are about no segment."""


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
    _pass_controls(runtime, allocation, work)
    return ADVANCED


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
        EdgeShare(child.edge, share.parents, share.child_index, child.back)
        for child, share in shares
    ]
    # For all tasks downstream at once: whether a child keeps the id of its parent depends on how
    # many children that has.
    made = hop(batch.ids, lineage, begins, withheld, sorted(routed.notes))
    for (child, share), ids in zip(shares, made.ids, strict=True):
        roots = batch.roots if share.parents is None else taken(batch.roots, share.parents)
        laps = None
        if child.laps is not None:
            laps = laps_of(batch.laps, len(batch), share.parents, child.laps)
        sent = Batch(share.segments, roots, ids, share.keys, laps)
        combiner = runtime.combiners.get(child.task)
        if combiner is None:
            put_to_child(outbox, groupings, child, sent, share.hashes)
        else:
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


# --- the plugin of an output --------------------------------------------------------------------


def write(program: Program, sink: Sink, allocation: Allocation, work: Work) -> bool:
    """Hand a batch to the plugin of an output, but for what is to be read again, and what goes
    elsewhere. False: the plugin cannot write all of it, and it comes again segment by segment,
    because requests have brought some: what fails of these is their answer.

    Raises:
        Exception: as `Sink.write`. If it is Unavailable, the batch is to be written again.
    """
    batch, leaves, routed = work.batch, work.leaves, work.routed
    assert batch is not None, "asked before"
    assert leaves is not None, "asked before"
    assert routed is not None, "the phase before"
    try:
        _write_kept(sink, allocation, batch, leaves, routed)
    except _NOT_OF_SEGMENTS:
        raise
    except Exception as error:
        answering = allocation.answering
        if batch.roots is None or not answering.any or not answering.among(batch.roots).any():
            raise
        if len(batch) > 1:
            take_apart(work)
            return False
        answer_or_raise(program, batch, routed, error)
        routed.notes = notes_of(program, answering, batch, leaves, routed)
        nothing = Leaves(chosen_by(leaves.segments, np.zeros(len(leaves), np.bool_)))
        _write(sink, allocation, batch, nothing)
    return True


def _write_kept(
    sink: Sink, allocation: Allocation, batch: Batch, leaves: Leaves, routed: Routed
) -> None:
    apart = sorted({*routed.retries, *routed.parents_elsewhere()})
    _write(sink, allocation, *(without(batch, leaves, apart) if apart else (batch, leaves)))
    if not routed.retries:
        return
    assert batch.roots is not None, "what is not accounted for is not retried"
    ask_for_retries(allocation, batch.roots, routed)


def _write(sink: Sink, allocation: Allocation, batch: Batch, leaves: Leaves) -> None:
    if allocation.committing is not None:
        allocation.committing.write(batch, leaves)
        return
    keeper = allocation.keeper
    if keeper is None or batch.roots is None or batch.ids is None:
        sink.write(leaves.segments, batch.roots, batch.ids, leaves.parents)
        return
    values, withheld = split_values(batch.ids)
    sink.write(leaves.segments, batch.roots, values, leaves.parents)
    keeper.withhold(batch.roots, withheld)


def without(batch: Batch, leaves: Leaves, failed: Sequence[int]) -> tuple[Batch, Leaves]:
    """The batch of an output without the segments that are to be read again, or that have gone
    elsewhere. Those have no leaves."""
    kept = np.delete(np.arange(len(batch)), failed)
    parents = np.arange(len(leaves)) if leaves.parents is None else leaves.parents
    left = Leaves(leaves.segments, np.searchsorted(kept, parents), leaves.child_index)
    return batch.take(kept), left


# --- until all is taken -------------------------------------------------------------------------


def write_batch(runtime: Runtime, allocation: Allocation, work: Work) -> Answer:
    """Wait until every destination has taken its part, and give the plugin time, or flush it if
    that was asked for: here, because a phase that the store refuses is done again, and nothing is
    written twice."""
    if runtime.sink is not None:
        _tend_plugin(runtime.sink, allocation)
    more = _more_follows(runtime, allocation, work)
    sent = not allocation.retries or _send_retries(runtime.services.transport, allocation)
    if not (sent and allocation.outbox.drain(more)):
        work.timer.refused(runtime.metrics)
        make_answers_durable(runtime, allocation)
        return WAITING
    work.timer.written(runtime.metrics)
    return ADVANCED


def _tend_plugin(sink: Sink, allocation: Allocation) -> None:
    """Once, for what waits for a flush: what the plugin has still to do then is done behind the
    acks. But not behind the last ones, with which a job may end."""
    if allocation.flush_wanted:
        sink.flush()
        allocation.flush_wanted = False
        if not allocation.ends.all_arrived():
            return
    sink.tick()


def _more_follows(runtime: Runtime, allocation: Allocation, work: Work) -> bool:
    """Whether another batch is about to be made: one that is whole mostly has a successor, and one
    that waits will be read next."""
    whole = runtime.sizing.segments_max
    if runtime.source is not None:
        return work.batch is not None and len(work.batch) >= whole
    return bool(work.pieces.waiting) or allocation.inbox.waiting_segments() >= whole


# --- segments that are to be read again ---------------------------------------------------------


def acked(
    allocation: Allocation, roots: Numbers, made: Hop, routed: Routed
) -> tuple[Numbers, Numbers]:
    """Roots and values to ack of a batch; a root that is to be replayed is not acked, so that its
    tree stays open."""
    values, retries = made.values, routed.retries
    if retries:
        ask_for_retries(allocation, roots, routed)
        rows = np.arange(len(roots)) if made.reported is None else made.reported
        wanted = np.isin(rows, retries, invert=True)
        return taken(roots, rows[wanted]), taken(values, wanted)
    return (roots if made.reported is None else taken(roots, made.reported)), values


def ask_again(allocation: Allocation, roots: Numbers, retries_max: int) -> None:
    """Have the owners of some roots read them again, each at most so many times."""
    owners = allocation.owners
    assert owners is not None, "no batch is read before the job is ready"
    parcels = owners.split(np.unique(array_of(roots)))
    allocation.retries.extend((site, part, retries_max) for site, part in parcels)


def ask_for_retries(allocation: Allocation, roots: Numbers, routed: Routed) -> None:
    """Have some roots of a batch read again, as routing has decided."""
    _say_why(allocation, roots, routed)
    wanted, limits = taken(roots, routed.retries), np.array(routed.retries_max)
    for limit in sorted(set(routed.retries_max)):
        ask_again(allocation, taken(wanted, limits == limit), limit)


def _say_why(allocation: Allocation, roots: Numbers, routed: Routed) -> None:
    """Tell the owners of roots why these are to be read again: whoever waits asks for that."""
    if not routed.retry_notes:
        return
    owners, of_roots = allocation.owners, array_of(roots)
    assert owners is not None, "no batch is read before the job is ready"
    trees = {int(of_roots[at]): parts for at, parts in routed.retry_notes.items()}
    for site, mine in owners.split(np.array(sorted(trees), dtype=np.uint64)):
        its = {root: trees[root] for root in array_of(mine).tolist()}
        allocation.reasons.append((site, its))


def _send_retries(transport: Transport, allocation: Allocation) -> bool:
    """Hand them to the transport, what is said of them first; False if it does not take all of
    them now."""
    wiring = allocation.wiring
    while allocation.reasons:
        site, trees = allocation.reasons[0]
        if not transport.send_returns(
            site.group, wiring.job, wiring.version, site.peer, trees, to_acker=False
        ):
            return False
        del allocation.reasons[0]
    while allocation.retries:
        site, roots, limit = allocation.retries[-1]
        if not transport.send_completions(
            site.group, wiring.job, wiring.version, site.peer, roots, limit
        ):
            return False
        allocation.retries.pop()
    return True


# --- control items ------------------------------------------------------------------------------


def _pass_controls(runtime: Runtime, allocation: Allocation, work: Work) -> None:
    """Read the control items behind the batch and send on what follows from them; several flushes
    at once are one. Nothing follows before the last piece of what was read: it all comes before."""
    if work.pieces.waiting:
        return
    sink, ends, source = runtime.sink, allocation.ends, runtime.source
    controls = work.controls
    if controls:
        work.controls = []
    elif source is None and allocation.keeper is None and allocation.event_time is None:
        return  # nothing follows from a batch alone
    keeper = allocation.keeper
    own = keeper is not None and keeper.wants_flush()
    own |= source is not None and source.wants_flush()
    arrived = False
    for sender, control in controls:
        if control.kind is ControlKind.END:
            ends.arrive(sender, control)
        elif control.kind is ControlKind.FLUSH:
            arrived = True
        elif allocation.event_time is not None:
            allocation.event_time.receive(sender, control)
    follow(allocation)
    pass_event_time(runtime, allocation, work, runtime.clock)
    _flush(runtime, allocation, arrived, own)
    ended = bool(controls) and ends.all_arrived()
    if sink is not None:
        allocation.flush_wanted |= ended
    elif ended and allocation.state_ended:
        ends.pass_on()


def _flush(runtime: Runtime, allocation: Allocation, arrived: bool, own: bool) -> None:
    """What tasks upstream wait for is to become durable here, or further down. What a stage has
    made begins anew, and waits for what is further down; only what it could not have goes there."""
    if not (arrived or own):
        return
    allocation.acks.hurry()
    keeper = allocation.keeper
    if keeper is not None and keeper.held_acks is not None and arrived:
        keeper.held_acks.flush_behind()
    sink, source = runtime.sink, runtime.source
    if sink is not None:
        allocation.flush_wanted |= arrived or source is None
    elsewhere = arrived and runtime.program.routes.handles_failures
    if sink is None or (own and source is not None) or elsewhere:
        allocation.outbox.broadcast(FLUSH)


def pass_event_time(
    runtime: Runtime, allocation: Allocation, work: Work, clock: Clock, idle: bool = False
) -> None:
    """Put watermarks and epochs that are due into the outbox, behind all that the task has sent.
    Not before the last piece of a batch that was split, because they follow from all of it."""
    event_time, outbox = allocation.event_time, allocation.outbox
    if event_time is None or work.pieces.waiting or (idle and len(outbox)):
        return
    if runtime.source is not None and runtime.sink is not None:
        event_time.rise(runtime.source.frontiers())
    for control in event_time.due(clock.monotonic_s(), idle):
        outbox.broadcast(control, event_time.children)
    if event_time.watermark is not None:
        runtime.metrics.set(WATERMARK, event_time.watermark / 1000)
