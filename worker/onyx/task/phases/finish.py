"""AFTER_BATCH, SEAL: acks are folded and sent; and the output of a whole task is sealed."""

from __future__ import annotations

from onyx.errors import Blocked, Unavailable, contained
from onyx.model.plugins import runs_spark
from onyx.plugins.attempts import BLOCKED_RETRY_S
from onyx.program.failure import Failure
from onyx.program.phases import Phase
from onyx.program.program import Program
from onyx.replica.commands.seal_output import SealOutput
from onyx.task.batch_task import BatchTask
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.status import Sealing, Status
from onyx.task.parts.work import Work
from onyx.task.phases.idle import ack_durable, report_queue
from onyx.task.stateful.upkeep import tend
from onyx.task.table import ADVANCED, WAITING, Answer
from onyx.telemetry.catalog import SPARK_STAGE_FAILURES, SPARK_STAGE_SECONDS

"""The plugin whose seal is a Spark stage."""


def after_batch(task: BatchTask) -> Answer:
    """End of the loop: acks go out, and the batch is forgotten."""
    runtime, allocation, work = task.runtime, task.allocation, task.work
    batch, sink = work.batch, runtime.sink
    if sink is not None:
        sink.tick()  # first, because a phase that cannot go on is done again
    if runtime.program.lifecycles.hooks:
        runtime.program.lifecycles.merge("after_batch", runtime.program.event)
    if sink is not None:
        ack_durable(runtime, allocation, sink)
    if allocation.keeper is not None:
        tend(runtime, allocation, idle=False, tick=batch is not None, ends=batch is None)
    allocation.acks.tend(idle=False)
    if batch is not None and work.leaves is not None:
        passed = len(work.leaves) if _passes_leaves(runtime.program, work) else 0
        work.timer.report(runtime.metrics, len(batch), passed)
        if not runtime.sizing.fixed:
            reading = runtime.source is None or runtime.sizing.full
            busy_s = work.timer.busy_s(reading)
            runtime.sizing.done(batch.segments, work.results, busy_s, work.timer.cpu_s)
        report_queue(runtime, allocation)
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


def seal(runtime: Runtime, status: Status, sealing: Sealing) -> Answer:
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
