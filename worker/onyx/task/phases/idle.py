"""What a task does when there is nothing to read: acks, watermarks, flushes, chunks, its end."""

from __future__ import annotations

from onyx.program.phases import Phase
from onyx.program.route import notes_of_refused
from onyx.replica.commands.exhaust_input import PARTITIONS_MAX, ExhaustInput
from onyx.task.batch_task import BatchTask
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.phases.controls import pass_event_time
from onyx.task.sink.sink import Sink
from onyx.task.source.reporting import report_progress
from onyx.task.source.source import Source
from onyx.task.stateful.end import has_ended
from onyx.task.stateful.upkeep import follow, tend
from onyx.task.table import ADVANCED, WAITING, Answer
from onyx.telemetry.catalog import QUEUE
from onyx.transport.interface import FLUSH

FLUSH_AGAIN_S = 1.0
"""In a job with loops, between two flushes that an idle source of trees asks for."""


def idle(task: BatchTask) -> Answer:
    """Do what is due; WAITING when nothing is."""
    if task.sealing.wanted:
        return Phase.SEAL
    runtime, allocation = task.runtime, task.allocation
    source, sink = runtime.source, runtime.sink
    follow(allocation)
    pass_event_time(runtime, allocation, task.work, runtime.clock, idle=True)
    if source is not None:
        _end_source(runtime, allocation, source)
    if allocation.wiring.loops:
        _flush_again(runtime, allocation)
    if not allocation.outbox.drain() and source is not None:
        return WAITING
    if sink is not None:
        sink.tick()
        ack_durable(runtime, allocation, sink)
    moved = tend(runtime, allocation, idle=True, tick=True, ends=True)
    allocation.acks.tend(idle=True)
    report_queue(runtime, allocation)
    return ADVANCED if moved else WAITING


def report_queue(runtime: Runtime, allocation: Allocation) -> None:
    """Report how full the inbox is."""
    if runtime.source is None or runtime.sink is not None:
        runtime.metrics.set(QUEUE, allocation.inbox.waiting_segments())


def ack_durable(runtime: Runtime, allocation: Allocation, sink: Sink) -> None:
    """Ack what an output has made durable, and its end if that was the last of it.

    Raises:
        Failure: the plugin cannot write segments that it had taken, and nobody takes care of it.
    """
    ends, settled = allocation.ends, sink.settle()
    for each in settled.refusals:
        notes = notes_of_refused(runtime.program, allocation.answering, *each)
        for root, parts in notes.items():
            allocation.acks.give_back(root, parts)
    for roots, values in settled.acks:
        allocation.acks.add(roots, values)
    if ends.all_arrived() and has_ended(allocation.keeper) and settled.all:
        ends.pass_on()


def _end_source(runtime: Runtime, allocation: Allocation, source: Source) -> None:
    """When everything has been read: flush, wait for what is in flight, propose exhaust-input."""
    if allocation.exhaust_proposed:
        return
    if not source.finished_reading():
        _flush(allocation, source)  # for those who ask late
        return
    if not runtime.delivery.read_through(source, allocation.ends):
        _flush(allocation, source)
        return
    if source.known and not source.save_frontiers():
        return
    report_progress(source, runtime.metrics)
    allocation.exhaust_proposed = True
    known = source.known
    for start in range(0, max(1, len(known)), PARTITIONS_MAX):
        part = known[start : start + PARTITIONS_MAX]
        runtime.assignment.propose(
            ExhaustInput(job=runtime.job_id, task=runtime.task, partitions=tuple(part))
        )


def _flush_again(runtime: Runtime, allocation: Allocation) -> None:
    """What was in a loop when outputs were told to flush comes to them later, when nothing more may
    be sent that would have them told."""
    source, keeper, now_s = runtime.source, allocation.keeper, runtime.clock.monotonic_s()
    waits = source is not None and source.in_flight > 0
    waits |= keeper is not None and keeper.emissions.unsettled > 0
    if waits and now_s >= allocation.flush_again_s:
        allocation.flush_again_s = now_s + FLUSH_AGAIN_S
        allocation.acks.hurry()
        allocation.outbox.broadcast(FLUSH)


def _flush(allocation: Allocation, source: Source) -> None:
    if source.wants_flush():
        allocation.acks.hurry()
        allocation.outbox.broadcast(FLUSH)
