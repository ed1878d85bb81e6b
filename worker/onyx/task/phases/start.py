"""LOAD_JOB to BEFORE_TASK, the phases before the first wiring: the job, lifecycles, the plugin."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from onyx.flow.apply import resolve_params
from onyx.flow.conditions import (
    Conditions,
    children_of,
    compile_conditions,
    everything_to,
)
from onyx.flow.group_hashes import Grouping
from onyx.flow.key_getters import key_getter
from onyx.flow.predicates import Resolve
from onyx.flow.schemas import arrow_schema
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.model.plugins import STAGE
from onyx.model.workflow import children
from onyx.program.lifecycles import Event, Lifecycles, compile_lifecycles
from onyx.program.phases import Phase
from onyx.program.reading.event_times import SourceTimes
from onyx.task.batch_sizing import BatchSizing
from onyx.task.channels.event_time import needs
from onyx.task.delivery.at_most_once import AtMostOnce
from onyx.task.delivery.policy import Delivery
from onyx.task.failures.suspects import check_task
from onyx.task.parts import Assignment, Program, Status
from onyx.task.phases import drive
from onyx.task.plugin_context import plugin_context
from onyx.task.sink.sink import Sink
from onyx.task.source.source import Source
from onyx.task.table import ADVANCED, WAITING, Answer, Kind, successors
from onyx.task.task import Task
from onyx.task.user_code import user_phases
from onyx.task.windowed import setup


def load_job(task: Task) -> Answer:
    """Read the job from the chunk store."""
    assignment = task.assignment
    check_task(assignment)
    services, job_id = assignment.services, assignment.job_id
    log, digest = services.log, services.replica().digest_of(job_id)
    if digest is None:
        return WAITING

    def load() -> Job:
        return parse_mapping(msgspec.json.decode(log.get_chunk(digest)))

    job = assignment.background.poll("job", load)
    if job is None:
        return WAITING
    if assignment.kind is Kind.DRIVER:
        task.program = drive.loaded(assignment, job)
        return ADVANCED
    entry, event = job.entry(assignment.task), event_of(assignment, job)
    delivery = AtMostOnce() if job.guarantee == "at-most-once" else Delivery()
    metrics = services.metrics(job_id, job, assignment.task)
    sizing = BatchSizing(entry)
    task.program = Program(assignment, job, entry, Lifecycles(), event, metrics, delivery, sizing)
    lifecycles = compile_lifecycles(job, assignment.task, services.resolve)
    shows = services.settings.task.report_values
    task.program = dataclasses.replace(task.program, lifecycles=lifecycles, report_values=shows)
    task.user_code.phases = user_phases(assignment.kind, task.program)
    return ADVANCED


def event_of(assignment: Assignment, job: Job) -> Event:
    """What the user's functions get, before anything is built."""
    entry = job.entry(assignment.task)
    return {
        "id": assignment.peer,
        "job_id": assignment.job_id,
        "job_name": job.name,
        "task": assignment.task,
        "workflow": job.workflow,
        "catalog": job.catalog,
        "task_map": entry,
        "flow_conditions": job.flow_conditions,
        "lifecycles": job.lifecycles,
        "metadata": job.metadata,
        "cooperative": entry.cooperative,
    }


def start_task(program: Program, status: Status) -> Answer:
    """Ask the lifecycles' start_task, again after a while if one of them says no."""
    now_s = program.clock.monotonic_s()
    if now_s < status.retry_after_s:
        return WAITING
    if program.lifecycles.may_start(program.event):
        return ADVANCED
    status.retry_after_s = now_s + program.services.settings.task.ready_back_off_s
    return WAITING


def build(task: Task) -> Answer:
    """Resolve functions and build the plugin."""
    assignment, services = task.assignment, task.assignment.services
    fn_params = services.fn_params(assignment.task)
    program = with_functions(task.program, services.resolve, fn_params)
    source, sink, cooperative = _build_plugin(program)
    program.event["cooperative"] = cooperative
    task.program = program = dataclasses.replace(program, source=source, sink=sink)
    task.user_code.phases = user_phases(assignment.kind, program)
    task.successors = successors(assignment.kind, _nothing_to_do(program))
    return ADVANCED


def with_functions(program: Program, resolve: Resolve, fn_params: Sequence[Any]) -> Program:
    """The program with all functions that the job names for the task.

    Args:
        fn_params: leading arguments of the task's function that the worker was started with.

    Raises:
        UserError: a function is not registered or not of the right kind.
    """
    name, job, entry = program.task, program.job, program.entry
    fn = resolve(entry.fn) if entry.fn is not None else None
    conditions, below = compile_conditions(job, name, resolve), children_of(job, name)
    program.event.update(params=resolve_params({name: fn_params}, entry), fn=fn)
    return dataclasses.replace(
        program,
        fn=fn,
        takes=_takes(program),
        schema=arrow_schema(entry),
        groupings=_groupings(program, resolve),
        conditions=conditions,
        own_conditions=_own_conditions(program, conditions, below),
        children=below,
        sends_to=setup.sends_to(job, name),
        windowed=setup.compiled(job, name, resolve),
    )


def _takes(program: Program) -> Literal["dicts", "arrow"] | None:
    """What the functions and hooks of a task get."""
    entry = program.entry
    looks = any(map(program.lifecycles.has, ("after_read_batch", "after_apply_fn", "after_batch")))
    own = entry.fn is not None or looks
    return entry.batch_format if own or entry.batch_format == "arrow" else None


def _build_plugin(program: Program) -> tuple[Source | None, Sink | None, bool]:
    """The source of an input, the sink of an output, or both of a stage, which reads columns; and
    whether steps never block."""
    entry, services, kind = program.entry, program.services, program.assignment.kind
    plugin, source, sink, cooperative = entry.plugin, None, None, True
    if kind is Kind.STAGE:
        plugin, entry = STAGE, dataclasses.replace(entry, batch_format="arrow")
    if kind is not Kind.FUNCTION:
        assert plugin is not None, "validated: inputs and outputs name a plugin"
        context = plugin_context(program)
        if kind is not Kind.OUTPUT:
            context = dataclasses.replace(context, batch_format=entry.batch_format)
            reads, times = services.build_input(plugin, context), _source_times(program)
            partition, retry_delay = program.delivery.partition, program.assignment.retry_delay
            source = Source(
                reads, entry, program.sizing, services.clock, partition, times, retry_delay
            )
            cooperative = reads.cooperative
        if kind is not Kind.INPUT:
            writes = services.build_output(plugin, context)
            sink, cooperative = Sink(writes, plugin), writes.cooperative
    return source, sink, cooperative if entry.cooperative is None else entry.cooperative


def _source_times(program: Program) -> SourceTimes | None:
    """None if nobody needs them, or the input assigns none."""
    entry, services = program.entry, program.services
    assigns = entry.watermark_key is not None or entry.assign_watermark_fn is not None
    if not assigns or needs(program.job, program.task) is None:
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


def _own_conditions(
    program: Program, conditions: Conditions | None, below: tuple[str, ...]
) -> Conditions | None:
    """The conditions of a task whose segments go nowhere (outputs and reduce tasks): exceptions
    only."""
    goes_on = program.assignment.kind not in (Kind.OUTPUT, Kind.STAGE)
    if goes_on and program.entry.type != "reduce":
        return conditions
    return (conditions or everything_to(below)).of_exceptions()


def _groupings(program: Program, resolve: Resolve) -> dict[str, Grouping]:
    job = program.job
    entries = [job.entry(child) for child in children(job.workflow)[program.task]]
    getters = [(entry, key_getter(entry, resolve)) for entry in entries]
    return {entry.name: Grouping(get, entry) for entry, get in getters if get is not None}
