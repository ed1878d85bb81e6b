"""Control items go on behind the batch that they came with: END, FLUSH, watermarks and epochs."""

from __future__ import annotations

from onyx.base.seams import Clock
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.work import Work
from onyx.task.stateful.end import has_ended
from onyx.task.stateful.upkeep import follow, wants_flush
from onyx.telemetry.catalog import WATERMARK
from onyx.transport.interface import FLUSH, ControlKind


def pass_controls(runtime: Runtime, allocation: Allocation, work: Work) -> None:
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
    own = wants_flush(allocation.keeper)
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
    elif ended and has_ended(allocation.keeper):
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
