"""Control items go on behind the batch that they came with: END, FLUSH, watermarks and epochs."""

from __future__ import annotations

from onyx.seams import Clock
from onyx.task.parts import Allocation, Program, Work
from onyx.task.windowed.end import has_ended
from onyx.task.windowed.upkeep import follow, wants_flush
from onyx.telemetry.catalog import WATERMARK
from onyx.transport.interface import FLUSH, ControlKind


def pass_controls(program: Program, allocation: Allocation, work: Work) -> None:
    """Read the control items behind the batch and send on what follows from them; several flushes
    at once are one."""
    sink, ends, source = program.sink, allocation.ends, program.source
    controls = work.controls
    if controls:
        work.controls = []
    elif source is None and allocation.windowing is None and allocation.event_time is None:
        return  # nothing follows from a batch alone
    flush = wants_flush(allocation.windowing)
    flush |= source is not None and source.wants_flush()
    for sender, control in controls:
        if control.kind is ControlKind.END:
            ends.arrive(sender, control)
        elif control.kind is ControlKind.FLUSH:
            flush = True
        elif allocation.event_time is not None:
            allocation.event_time.receive(sender, control)
    follow(allocation)
    pass_event_time(program, allocation, work, program.clock)
    if flush:
        allocation.acks.hurry()
        if sink is None:
            allocation.outbox.broadcast(FLUSH)
    ended = bool(controls) and ends.all_arrived()
    if sink is not None:
        allocation.flush_wanted |= flush or ended
    elif ended and has_ended(allocation.windowing):
        ends.pass_on()


def pass_event_time(
    program: Program, allocation: Allocation, work: Work, clock: Clock, idle: bool = False
) -> None:
    """Put watermarks and epochs that are due into the outbox, behind all that the task has sent.
    Not before the last part of a batch that was split, because they follow from all of it."""
    event_time, outbox = allocation.event_time, allocation.outbox
    if event_time is None or work.parts.waiting or (idle and len(outbox)):
        return
    for control in event_time.due(clock.monotonic_s(), idle):
        outbox.broadcast(control, event_time.children)
    if event_time.watermark is not None:
        program.metrics.set(WATERMARK, event_time.watermark / 1000)
