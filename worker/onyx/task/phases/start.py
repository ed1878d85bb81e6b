"""LOAD_JOB to BEFORE_TASK, the phases before the first wiring: the job, lifecycles, the plugin."""

from __future__ import annotations

from msgspec.structs import replace

from onyx.model.tables import looked_up
from onyx.operators.building import with_functions
from onyx.program.lifecycles import compile_lifecycles
from onyx.program.phases import Phase
from onyx.program.program import Program, event_of
from onyx.task.batch_task import BatchTask
from onyx.task.batching.sizing import BatchSizing
from onyx.task.building import build_plugin
from onyx.task.channels.combining import combiners
from onyx.task.delivery.mixed import delivery_of
from onyx.task.loading import load
from onyx.task.parts.followed import Followed
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.status import Status
from onyx.task.table import ADVANCED, WAITING, Answer, successors
from onyx.task.tables import first_tables, tables_of
from onyx.task.user_code import user_phases


def load_job(task: BatchTask) -> Answer:
    """Read the job from the chunk store."""
    assignment = task.assignment
    manifest = load(assignment)
    if manifest is None:
        return WAITING
    followed = Followed(manifest)
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
    runtime = Runtime(assignment, program, delivery_of(job, entry), BatchSizing(entry), followed)
    # Before lifecycles are compiled, which may fail: then the failure is one of a loaded job.
    task.load(runtime)
    lifecycles = compile_lifecycles(job, assignment.task, services.resolve)
    program = replace(program, lifecycles=lifecycles)
    tables = tables_of(assignment, job, entry) if looked_up(entry) else None
    task.load(replace(runtime, program=program, tables=tables))
    task.user_code.phases = user_phases(program)
    return ADVANCED


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
    """Resolve functions and build the plugin, when the tables that the task looks up are there."""
    services, tables = task.assignment.services, task.runtime.tables
    if not first_tables(task.runtime):
        return WAITING
    fn_params = services.fn_params(task.assignment.task)
    now = {} if tables is None else tables.now
    program = with_functions(task.runtime.program, services.resolve, fn_params, now)
    runtime = replace(task.runtime, program=program)
    source, sink, cooperative = build_plugin(runtime)
    program.event["cooperative"] = cooperative
    combined = combiners(program.job, program.task, services.resolve)
    task.load(replace(runtime, source=source, sink=sink, combiners=combined))
    task.user_code.phases = user_phases(program)
    task.successors = successors(task.assignment.kind, _nothing_to_do(program))
    return ADVANCED


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


def before_task(program: Program, status: Status) -> Answer:
    """Call before_task_start, once."""
    status.started = True
    program.lifecycles.merge("before_task_start", program.event)
    return ADVANCED
