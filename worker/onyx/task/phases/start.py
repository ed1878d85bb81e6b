"""LOAD_JOB to BEFORE_TASK, the phases before the first wiring: the job, lifecycles, functions, and
the plugin with what reads or writes with it.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from onyx.ids import NO_POSITION
from onyx.model.job import CatalogEntry
from onyx.model.plugins import STAGE
from onyx.model.workflow import looked_up
from onyx.operators.building import with_functions
from onyx.program.event_times import SourceTimes
from onyx.program.failure import FirstFailures
from onyx.program.lifecycles import compile_lifecycles
from onyx.program.phases import Phase
from onyx.program.program import Program, event_of
from onyx.replica.job_events import TASK_REFUSED, local_event
from onyx.task.batching import BatchSizing
from onyx.task.channels.alignment import is_aligned
from onyx.task.channels.combining import combiners
from onyx.task.channels.event_time import needs
from onyx.task.delivery import delivery_of
from onyx.task.parts import Assignment, FollowedOptions, Runtime, TaskStatus, load
from onyx.task.plugin_context import plugin_context
from onyx.task.recovery.old_job import initialized_journal
from onyx.task.sink.sink import Sink
from onyx.task.source.source import Source
from onyx.task.suspects import check_task
from onyx.task.table import ADVANCED, WAITING, Answer, TaskKind, successors
from onyx.task.tables import first_tables, tables_of
from onyx.task.task import BatchTask
from onyx.task.user_code import user_phases
from onyx.telemetry.logs import happened


def load_job(task: BatchTask) -> Answer:
    """Read the job from the chunk store."""
    assignment = task.assignment
    check_task(assignment)
    manifest = load(assignment)
    if manifest is None:
        return WAITING
    followed = FollowedOptions(manifest)
    job = followed.take(assignment.latest_run())
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
    program = replace(program, first_failures=_first_failures(assignment, entry))
    runtime = Runtime(assignment, program, delivery_of(job, entry), BatchSizing(entry), followed)
    # Before lifecycles are compiled, which may fail: then the failure is one of a loaded job.
    task.load(runtime)
    lifecycles = compile_lifecycles(job, assignment.task, services.resolve)
    program = replace(program, lifecycles=lifecycles)
    tables = tables_of(assignment, job, entry) if looked_up(entry) else None
    task.load(replace(runtime, program=program, tables=tables))
    task.user_code.phases = user_phases(program)
    return ADVANCED


def _first_failures(assignment: Assignment, entry: CatalogEntry) -> FirstFailures | None:
    """Counts those of a peer with which the job begins. Whoever comes later may do so when all fail
    for a while, in a job in which something has not failed before."""
    record = assignment.services.replica().records.get(assignment.job_id)
    begins = record is not None and record.ready_version == NO_POSITION
    wanted = begins and entry.dead_letter is not None and entry.first_failures_max
    return FirstFailures(entry.first_failures_max) if wanted else None


def start_task(runtime: Runtime, status: TaskStatus) -> Answer:
    """Ask the lifecycles' start_task, again after a while if one of them says no."""
    now_s = runtime.clock.monotonic_s()
    if now_s < status.retry_after_s:
        return WAITING
    if runtime.program.lifecycles.may_start(runtime.program.event):
        return ADVANCED
    status.retry_after_s = now_s + runtime.services.settings.task.ready_back_off_s
    if not status.refused:
        status.refused = True
        happened(local_event(TASK_REFUSED, runtime.job_id, task=runtime.task))
    return WAITING


def build(task: BatchTask) -> Answer:
    """Resolve functions and build the plugin, when the tables that the task looks up are there."""
    services, tables = task.assignment.services, task.runtime.tables
    if not first_tables(task.runtime):
        return WAITING
    fn_params = services.fn_params(task.assignment.task)
    now = {} if tables is None else tables.now
    program = with_functions(task.runtime.program, services.resolve, fn_params, now)
    runtime = replace(task.runtime, program=program)
    source, sink, cooperative = _build_plugin(runtime)
    program.event["cooperative"] = cooperative
    combined = combiners(program.job, program.task, services.resolve)
    task.load(replace(runtime, source=source, sink=sink, combiners=combined))
    task.user_code.phases = user_phases(program)
    task.successors = successors(task.assignment.kind, _nothing_to_do(program))
    return ADVANCED


def _build_plugin(runtime: Runtime) -> tuple[Source | None, Sink | None, bool]:
    """The source of an input, the sink of an output, or both of a stage, which reads columns; and
    whether steps never block."""
    entry, services, kind = runtime.program.entry, runtime.services, runtime.assignment.kind
    plugin, source, sink, cooperative = entry.plugin, None, None, True
    if kind is TaskKind.STAGE:
        plugin, entry = STAGE, replace(entry, batch_format="arrow")
    operator = runtime.program.operator
    if kind is TaskKind.FUNCTION and operator is not None and operator.is_cooperative is not None:
        cooperative = operator.is_cooperative
    if kind is not TaskKind.FUNCTION:
        assert plugin is not None, "validated: inputs and outputs name a plugin"
        context = plugin_context(runtime)
        if kind is not TaskKind.OUTPUT:
            context = replace(
                context,
                batch_format=entry.batch_format,
                begins_after=partial(initialized_journal, runtime),
            )
            reads, times = services.build_input(plugin, context), _source_times(runtime)
            partition, retry_delay = runtime.delivery.partition, runtime.assignment.retry_delay
            source = Source(
                reads, entry, runtime.sizing, services.clock, partition, times, retry_delay
            )
            cooperative = reads.cooperative
        if kind is not TaskKind.INPUT:
            writes = services.build_output(plugin, context)
            sink, cooperative = Sink(writes, plugin), writes.cooperative
    return source, sink, cooperative if entry.cooperative is None else entry.cooperative


def _source_times(runtime: Runtime) -> SourceTimes | None:
    """None if nobody needs them, or the input assigns none."""
    entry, services = runtime.program.entry, runtime.services
    assigns = entry.watermark_key is not None or entry.assign_watermark_fn is not None
    job = runtime.program.job
    if not assigns or (needs(job, runtime.task) is None and not is_aligned(job, runtime.task)):
        return None
    return SourceTimes(entry, services.resolve, services.clock)


def _nothing_to_do(program: Program) -> frozenset[Phase]:
    """Phases of the loop that are there for somebody this task does not have."""
    there_for = {
        Phase.BEFORE_BATCH: program.lifecycles.has("before_batch"),
        Phase.AFTER_READ_BATCH: program.observed,
        Phase.LOOK_UP: program.kept is not None,
        Phase.AFTER_APPLY_FN: program.lifecycles.has("after_apply_fn"),
        Phase.ASSIGN_WINDOWS: program.operator is not None,
    }
    return frozenset(phase for phase, somebody in there_for.items() if not somebody)


def before_task(program: Program, status: TaskStatus) -> Answer:
    """Call before_task_start, once."""
    status.started = True
    program.lifecycles.merge("before_task_start", program.event)
    return ADVANCED
