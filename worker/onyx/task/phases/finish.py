"""AFTER_BATCH, SEAL, and what a task does when there is nothing to read.

With each round acks are folded and sent. An idle task sends on watermarks and flushes, cuts chunks,
and ends its input. When all inputs have ended, the peer that was elected seals the output of the
whole task.
"""

from __future__ import annotations

from onyx.errors import Blocked, Unavailable, contained
from onyx.model.plugins import runs_spark
from onyx.plugins.attempts import BLOCKED_RETRY_S
from onyx.program.batch_work import notes_of_refused
from onyx.program.failure import Failure
from onyx.program.phases import Phase
from onyx.program.program import Program
from onyx.replica.commands.exhaust_input import PARTITIONS_MAX, ExhaustInput
from onyx.replica.commands.pause_job import SignalRest
from onyx.replica.commands.seal_output import SealOutput
from onyx.task.parts import Allocation, Runtime, Sealing, TaskStatus, Work
from onyx.task.phases.send import pass_event_time
from onyx.task.sink.sink import Sink
from onyx.task.source.source import Source, report_progress
from onyx.task.table import ADVANCED, WAITING, Answer
from onyx.task.task import BatchTask
from onyx.task.upkeep import follow, tend
from onyx.telemetry.catalog import QUEUE, SPARK_STAGE_FAILURES, SPARK_STAGE_SECONDS
from onyx.transport.interface import FLUSH

FLUSH_AGAIN_S = 1.0
"""In a job with loops, between two flushes that an idle source of trees asks for."""


def after_batch(task: BatchTask) -> Answer:
    """End of the loop: acks go out, and the batch is forgotten."""
    runtime, allocation, work = task.runtime, task.allocation, task.work
    batch, sink = work.batch, runtime.sink
    if runtime.program.lifecycles.hooks:
        runtime.program.lifecycles.merge("after_batch", runtime.program.event)
    if sink is not None:
        _ack_written(runtime, allocation, sink)
    if allocation.keeper is not None:
        tend(runtime, allocation, idle=False, tick=batch is not None, ends=batch is None)
    allocation.acks.tend(idle=False)
    if batch is not None and work.leaves is not None:
        passed = len(work.leaves) if _passes_leaves(runtime.program, work) else 0
        work.timer.report(runtime.metrics, len(batch), passed)
        if not runtime.sizing.fixed:
            # A source may wait in reading for what is not there yet: that is no cost of a batch.
            reading = runtime.source is None or runtime.sizing.full
            busy_s = work.timer.busy_s(reading)
            runtime.sizing.done(batch.segments, work.results, busy_s, work.timer.cpu_s)
        _report_queue(runtime, allocation)
    edges = allocation.edges
    task.status.batches += batch is not None or edges is None or not edges.resting
    work.forget_batch()
    if runtime.program.observed:
        runtime.program.event["batch"] = runtime.program.event["results"] = []
    if task.sealing.wanted and batch is None:
        return Phase.SEAL  # control items may keep coming: waiting for none is waiting long
    return ADVANCED


def _passes_leaves(program: Program, work: Work) -> bool:
    """Whether what the function made goes on: a reduce task, a join and a stage of Spark only look
    at it. What they make counts when it is sent."""
    stays = program.operator is not None and program.operator.needs.absorbs
    return not stays and (program.entry.stage is None or work.own)


# --- nothing to read ----------------------------------------------------------------------------


def idle(task: BatchTask) -> Answer:
    """Do what is due; WAITING when nothing is. ADVANCED goes through the phases that follow without
    a batch: so what has fired meanwhile is sent when the state log has it."""
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
        _ack_written(runtime, allocation, sink)
    moved = tend(runtime, allocation, idle=True, tick=True, ends=True)
    _signal_rest(runtime, allocation)
    allocation.acks.tend(idle=True)
    _report_queue(runtime, allocation)
    return ADVANCED if moved else WAITING


def _ack_written(runtime: Runtime, allocation: Allocation, sink: Sink) -> None:
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
    if ends.all_arrived() and allocation.state_ended and settled.all:
        ends.pass_on()


def _report_queue(runtime: Runtime, allocation: Allocation) -> None:
    """Report how full the inbox is."""
    if runtime.source is None or runtime.sink is not None:
        runtime.metrics.set(QUEUE, allocation.inbox.waiting_segments())


def _end_source(runtime: Runtime, allocation: Allocation, source: Source) -> None:
    """When everything has been read: flush, wait for what is in flight, propose exhaust-input."""
    # In this order: what is read is complete, then its frontiers are stored, and only then does the
    # log hear that nothing follows: outputs may be sealed as soon as it does.
    if allocation.exhaust_proposed:
        return
    if not source.finished_reading():
        _flush_if_wanted(allocation, source)  # for those who ask late
        return
    if not runtime.delivery.read_through(source, allocation.ends):
        _flush_if_wanted(allocation, source)
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


def _flush_if_wanted(allocation: Allocation, source: Source) -> None:
    if source.wants_flush():
        allocation.acks.hurry()
        allocation.outbox.broadcast(FLUSH)


def _signal_rest(runtime: Runtime, allocation: Allocation) -> None:
    """Signal once that a source is at rest in a paused job: nothing of it is in flight any more."""
    source, keeper = runtime.source, allocation.keeper
    paused = runtime.assignment.latest_run().paused
    if not allocation.rests or allocation.rest_signalled == paused:
        return
    if source is None and keeper is None:
        return
    if keeper is not None and keeper.emissions.wants_flush(ends=True):
        allocation.outbox.broadcast(FLUSH)
    partitions = () if source is None else source.partitions.values()
    rest = [each.come_to_rest() for each in partitions]  # each of them, so that all save at once
    if all(rest) and (keeper is None or keeper.come_to_rest()):
        allocation.rest_signalled = paused
        me, version = runtime.assignment.peer, allocation.wiring.version
        runtime.assignment.propose(
            SignalRest(runtime.job_id, runtime.task, version, paused, peers=(me,))
        )


# --- the end of an output -----------------------------------------------------------------------


def seal(runtime: Runtime, status: TaskStatus, sealing: Sealing) -> Answer:
    """Seal the output of the whole task on behalf of all its peers.

    Raises:
        Failure: it has failed too often.
        Unavailable: what it needs cannot be reached; it is tried again.
    """
    sink = runtime.sink
    assert sink is not None
    clock, settings = runtime.clock, runtime.services.settings.task
    now_s = clock.monotonic_s()
    if now_s < status.retry_after_s:
        return WAITING
    entry = runtime.program.entry
    is_stage = runs_spark(entry.type, entry.plugin) and "stage" in entry.options
    runtime.seal_progress.value = None
    status.obstacle = ""
    try:
        sink.seal()
        parts = sink.last_parts()
    except Blocked:
        status.retry_after_s = now_s + BLOCKED_RETRY_S
        raise
    except BaseException as raised:
        error = contained(raised)
        runtime.seal_progress.value = None  # it says nothing of the next attempt
        if is_stage:
            runtime.metrics.add(SPARK_STAGE_FAILURES)
        attempts, failed_s = sealing.attempts, clock.monotonic_s()
        again_s = attempts.next_s(
            error, failed_s, settings.seal_attempts_max, settings.ready_back_off_s
        )
        times = f"sealing the output failed {attempts.words(error)}"
        if again_s is None:
            raise Failure(Phase.SEAL.value, error, times) from error
        status.retry_after_s = again_s
        if isinstance(error, Unavailable):
            raise Unavailable(times) from error
        return WAITING
    if is_stage:
        runtime.metrics.observe(SPARK_STAGE_SECONDS, clock.monotonic_s() - now_s)
    sealing.wanted = False
    runtime.assignment.propose(SealOutput(job=runtime.job_id, task=runtime.task, parts=parts))
    return ADVANCED
