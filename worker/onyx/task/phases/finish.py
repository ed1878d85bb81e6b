"""AFTER_BATCH, SEAL: acks are folded and sent; and the output of a whole task is sealed."""

from __future__ import annotations

from onyx.errors import Blocked, Unavailable, contained
from onyx.model.plugins import runs_spark
from onyx.plugins.attempts import BLOCKED_RETRY_S
from onyx.program.failure import Failure
from onyx.program.phases import Phase
from onyx.replica.commands.seal_output import SealOutput
from onyx.task.parts import Program, Sealing, Status
from onyx.task.phases.idle import ack_durable, report_queue
from onyx.task.table import ADVANCED, WAITING, Answer
from onyx.task.task import Task
from onyx.task.windowed.upkeep import tend
from onyx.telemetry.catalog import SPARK_STAGE_FAILURES, SPARK_STAGE_SECONDS

"""The plugin whose seal is a Spark stage."""


def after_batch(task: Task) -> Answer:
    """End of the loop: acks go out, and the batch is forgotten."""
    program, allocation, work = task.program, task.allocation, task.work
    batch, leaves, sink = work.batch, work.leaves, program.sink
    if sink is not None:
        sink.tick()  # first, because a phase that cannot go on is done again
    if program.lifecycles.hooks:
        program.lifecycles.merge("after_batch", program.event)
    if sink is not None:
        ack_durable(program, allocation, sink)
    if allocation.windowing is not None:
        tend(program, allocation, idle=False, tick=batch is not None, ends=batch is None)
    allocation.acks.tend(idle=False)
    if batch is not None and leaves is not None:
        work.timer.report(program.metrics, len(batch), len(leaves))
        if not program.sizing.fixed:
            reading = program.source is None or program.sizing.full
            busy_s = work.timer.busy_s(reading)
            program.sizing.done(batch.segments, len(leaves), busy_s, work.timer.cpu_s)
        report_queue(program, allocation)
    work.forget_batch()
    task.status.batches += 1
    if program.observed:
        program.event["batch"] = program.event["results"] = []
    if task.sealing.wanted and batch is None:
        return Phase.SEAL  # control items may keep coming: waiting for none is waiting long
    return ADVANCED


def seal(program: Program, status: Status, sealing: Sealing) -> Answer:
    """Seal the output of the whole task on behalf of all its peers.

    Raises:
        Failure: it has failed too often.
        Unavailable: what it needs cannot be reached; it is tried again.
    """
    sink = program.sink
    assert sink is not None
    clock, settings = program.clock, program.services.settings.task
    now_s = clock.monotonic_s()
    if now_s < status.retry_after_s:
        return WAITING
    entry = program.entry
    is_stage = runs_spark(entry.type, entry.plugin) and "stage" in entry.options
    program.seal_progress.value = None
    status.obstacle = ""
    try:
        sink.seal()
    except Blocked:
        status.retry_after_s = now_s + BLOCKED_RETRY_S
        raise
    except BaseException as raised:
        error = contained(raised)
        program.seal_progress.value = None  # it says nothing of the next attempt
        if is_stage:
            program.metrics.add(SPARK_STAGE_FAILURES)
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
        program.metrics.observe(SPARK_STAGE_SECONDS, clock.monotonic_s() - now_s)
    sealing.wanted = False
    program.assignment.propose(SealOutput(job=program.job_id, task=program.task))
    return ADVANCED
