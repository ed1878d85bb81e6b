"""Where the batches of a task come from: its source, its inbox, or what was kept for it."""

from __future__ import annotations

from onyx.flow.batch import Batch
from onyx.ids import PeerId, TaskName
from onyx.ledger.applied import above
from onyx.task.channels.dealing import put_to_child
from onyx.task.channels.edges import Edges, read_edges
from onyx.task.options import follow_limit
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.work import Work
from onyx.task.phases.deliveries import read_apart, read_either, take_deliveries
from onyx.task.source import segment_hooks
from onyx.task.source.reporting import report_progress
from onyx.task.source.source import Source
from onyx.telemetry.catalog import GIVEN_UP, RETRIES, TAKEN_OVER
from onyx.transport.interface import Control, Delivery


def read(runtime: Runtime, allocation: Allocation, work: Work) -> bool:
    """Take the next batch, or control items; False if there are none."""
    source, program = runtime.source, runtime.program
    if allocation.edges is not None:
        return _read_edges(runtime, allocation, allocation.edges, work)
    if source is None and program.operator is not None and program.operator.needs.parents_apart:
        return read_apart(work, allocation.wiring.upstream, lambda: _take(runtime, allocation))
    if source is None:
        return take_deliveries(work, _living(allocation, _take(runtime, allocation)))
    if runtime.sink is None:
        work.take(_read_source(runtime, source))
        return work.batch is not None
    return read_either(
        work,
        allocation.wiring.upstream,
        lambda: _take(runtime, allocation),
        lambda: _read_source(runtime, source),
    )


def _read_edges(runtime: Runtime, allocation: Allocation, edges: Edges, work: Work) -> bool:
    def take(full: frozenset[PeerId]) -> list[Delivery]:
        allocation.inbox.hold(full)
        return _living(allocation, _take(runtime, allocation))

    moves = 0 if allocation.keeper is None else allocation.keeper.operator.moves
    work.batch, controls = read_edges(edges, moves, take)
    work.controls += controls
    return work.batch is not None or bool(work.controls)


def take_kept(runtime: Runtime, allocation: Allocation, work: Work) -> bool:
    """Go on with what was kept over a change of the allocation."""

    def put(name: TaskName, batch: Batch) -> None:
        child = next(each for each in allocation.wiring.children if each.task == name)
        put_to_child(allocation.outbox, runtime.program.routes.groupings, child, batch)

    kept = runtime.delivery.take_kept(put)
    if kept is None:
        return False
    work.batch, work.leaves = kept
    return True


def _read_source(runtime: Runtime, source: Source) -> list[Batch]:
    if runtime.sink is None and runtime.assignment.latest_run().draining:
        source.drain()  # but not what a stage makes of what was read further up
    if source.checkpoint(runtime.services.settings.ledger.frontier_interval_s):
        report_progress(source, runtime.metrics)
    follow_limit(runtime, source)
    batches = source.read()
    if given_up := source.take_given_up():
        runtime.metrics.add(GIVEN_UP, given_up)
    if taken_over := source.take_taken_over():
        runtime.metrics.add(TAKEN_OVER, taken_over)
    runtime.sizing.taken(sum(map(len, batches)))
    if batches and (retried := source.take_retried()):
        runtime.metrics.add(RETRIES, retried)
        for batch in batches:
            segment_hooks.retried(source, runtime.program, batch)
    return batches


def _living(allocation: Allocation, deliveries: list[Delivery]) -> list[Delivery]:
    """Without what comes back in a loop although its tree is complete, as that of an attempt that
    was overtaken by the next. Those downstream have been told that nothing of it follows, and may
    have forgotten its ids."""
    event_time, back = allocation.event_time, allocation.wiring.senders_back
    if not back or event_time is None or not event_time.passed:
        return deliveries
    for delivery in deliveries:
        item = delivery.item
        if delivery.channel.source in back and isinstance(item, Batch) and item.roots is not None:
            kept = above(event_time.passed, item.roots)
            delivery.item = item.take(kept.nonzero()[0])
    return [each for each in deliveries if isinstance(each.item, Control) or len(each.item)]


def _take(runtime: Runtime, allocation: Allocation) -> list[Delivery]:
    """What waits in the inbox; nothing while a batch is to be filled."""
    inbox, sizing = allocation.inbox, runtime.sizing
    waiting, segments_max = inbox.waiting_segments(), sizing.segments_max
    if not (inbox.hurried or allocation.filling.over(waiting, segments_max)):
        return []
    sizing.taken(waiting)
    return inbox.take(segments_max)
