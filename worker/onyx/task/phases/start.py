"""LOAD_JOB to BEFORE_TASK, the phases before the first wiring: the job, lifecycles, the plugin."""

from __future__ import annotations

import dataclasses

from onyx.model.job import Job
from onyx.model.plugins import STAGE
from onyx.program.building import with_functions
from onyx.program.lifecycles import compile_lifecycles
from onyx.program.phases import Phase
from onyx.program.program import Program, event_of
from onyx.program.reading.event_times import SourceTimes
from onyx.task.batch_sizing import BatchSizing
from onyx.task.batch_task import BatchTask
from onyx.task.channels.event_time import needs
from onyx.task.delivery.at_most_once import AtMostOnce
from onyx.task.delivery.policy import Delivery
from onyx.task.loading import load
from onyx.task.parts.assignment import Assignment
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.status import Status
from onyx.task.plugin_context import plugin_context
from onyx.task.sink.sink import Sink
from onyx.task.source.source import Source
from onyx.task.table import ADVANCED, WAITING, Answer, Kind, successors
from onyx.task.user_code import user_phases


def load_job(task: BatchTask) -> Answer:
    """Read the job from the chunk store."""
    assignment = task.assignment
    job = load(assignment)
    if job is None:
        return WAITING
    runtime = _loaded(assignment, job)
    task.load(runtime)
    lifecycles = compile_lifecycles(job, assignment.task, assignment.services.resolve)
    program = dataclasses.replace(runtime.program, lifecycles=lifecycles)
    task.load(dataclasses.replace(runtime, program=program))
    task.user_code.phases = user_phases(program)
    return ADVANCED


def _loaded(assignment: Assignment, job: Job) -> Runtime:
    services, job_id, entry = assignment.services, assignment.job_id, job.entry(assignment.task)
    program = Program(
        job_id=job_id,
        job=job,
        entry=entry,
        event=event_of(assignment.peer, job_id, job, entry),
        clock=services.clock,
        metrics=services.metrics(job_id, job, assignment.task),
        report_values=services.settings.task.report_values,
    )
    delivery = AtMostOnce() if job.guarantee == "at-most-once" else Delivery()
    return Runtime(assignment, program, delivery, BatchSizing(entry))


def start_task(runtime: Runtime, status: Status) -> Answer:
    """Ask the lifecycles' start_task, again after a while if one of them says no."""
    now_s = runtime.clock.monotonic_s()
    if now_s < status.retry_after_s:
        return WAITING
    if runtime.program.lifecycles.may_start(runtime.program.event):
        return ADVANCED
    status.retry_after_s = now_s + runtime.services.settings.task.ready_back_off_s
    return WAITING


def build(task: BatchTask) -> Answer:
    """Resolve functions and build the plugin."""
    services = task.assignment.services
    fn_params = services.fn_params(task.assignment.task)
    program = with_functions(task.runtime.program, services.resolve, fn_params)
    runtime = dataclasses.replace(task.runtime, program=program)
    source, sink, cooperative = _build_plugin(runtime)
    program.event["cooperative"] = cooperative
    task.load(dataclasses.replace(runtime, source=source, sink=sink))
    task.user_code.phases = user_phases(program)
    task.successors = successors(task.assignment.kind, _nothing_to_do(program))
    return ADVANCED


def _build_plugin(runtime: Runtime) -> tuple[Source | None, Sink | None, bool]:
    """The source of an input, the sink of an output, or both of a stage, which reads columns; and
    whether steps never block."""
    entry, services, kind = runtime.program.entry, runtime.services, runtime.assignment.kind
    plugin, source, sink, cooperative = entry.plugin, None, None, True
    if kind is Kind.STAGE:
        plugin, entry = STAGE, dataclasses.replace(entry, batch_format="arrow")
    if kind is not Kind.FUNCTION:
        assert plugin is not None, "validated: inputs and outputs name a plugin"
        context = plugin_context(runtime)
        if kind is not Kind.OUTPUT:
            context = dataclasses.replace(context, batch_format=entry.batch_format)
            reads, times = services.build_input(plugin, context), _source_times(runtime)
            partition, retry_delay = runtime.delivery.partition, runtime.assignment.retry_delay
            source = Source(
                reads, entry, runtime.sizing, services.clock, partition, times, retry_delay
            )
            cooperative = reads.cooperative
        if kind is not Kind.INPUT:
            writes = services.build_output(plugin, context)
            sink, cooperative = Sink(writes, plugin), writes.cooperative
    return source, sink, cooperative if entry.cooperative is None else entry.cooperative


def _source_times(runtime: Runtime) -> SourceTimes | None:
    """None if nobody needs them, or the input assigns none."""
    entry, services = runtime.program.entry, runtime.services
    assigns = entry.watermark_key is not None or entry.assign_watermark_fn is not None
    if not assigns or needs(runtime.program.job, runtime.task) is None:
        return None
    return SourceTimes(entry, services.resolve, services.clock)


def _nothing_to_do(program: Program) -> frozenset[Phase]:
    """Phases of the loop that are there for somebody this task does not have."""
    there_for = {
        Phase.BEFORE_BATCH: program.lifecycles.has("before_batch"),
        Phase.AFTER_READ_BATCH: program.observed,
        Phase.AFTER_APPLY_FN: program.lifecycles.has("after_apply_fn"),
        Phase.ASSIGN_WINDOWS: program.windowed is not None,
    }
    return frozenset(phase for phase, somebody in there_for.items() if not somebody)


def before_task(program: Program, status: Status) -> Answer:
    """Call before_task_start, once."""
    status.started = True
    program.lifecycles.merge("before_task_start", program.event)
    return ADVANCED
