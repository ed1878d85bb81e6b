"""The phases before the first wiring: loading the job, asking lifecycles, building the plugin."""

from __future__ import annotations

import dataclasses

import msgspec

from onyx.flow.apply import resolve_params
from onyx.flow.conditions import (
    Conditions,
    children_of,
    compile_conditions,
    everything_to,
)
from onyx.flow.grouping import Grouping, key_getter
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.model.workflow import children
from onyx.task import user_code
from onyx.task.channels.event_time import source_times
from onyx.task.failures import suspects
from onyx.task.lifecycles import compile_lifecycles
from onyx.task.phases.table import Kind, Phase, Progress, successors
from onyx.task.recovery.plugin_context import plugin_context
from onyx.task.sink.sink import Sink
from onyx.task.source.source import Source
from onyx.task.task import Static, Task
from onyx.task.windowed import setup


def load_job(task: Task) -> Progress:
    suspects.check_task(task)
    digest = task.services.replica().job_digests.get(task.job_id)
    if digest is None:
        return Progress.WAITING
    log = task.services.log
    job: Job | None = task.poll(
        "job",
        lambda: task.services.background(
            lambda: parse_mapping(msgspec.json.decode(log.get_chunk(digest)))
        ),
    )
    if job is None:
        return Progress.WAITING
    resolve = task.services.resolve
    entry = job.entry(task.name)
    event = {
        "id": task.peer,
        "job_id": task.job_id,
        "job_name": job.name,
        "task": task.name,
        "workflow": job.workflow,
        "catalog": job.catalog,
        "task_map": entry,
        "flow_conditions": job.flow_conditions,
        "lifecycles": job.lifecycles,
        "metadata": job.metadata,
        "cooperative": entry.cooperative,
    }
    task.metrics = task.services.metrics(task.job_id, job, task.name)
    task.filling.timeout_s = entry.batch_timeout / 1000
    task.static = Static(job, entry, compile_lifecycles(job, task.name, resolve), event)
    task.user_phases = user_code.user_phases(task.kind, task.static)
    return Progress.ADVANCED


def start_task(task: Task) -> Progress:
    now_s = task.services.clock.monotonic_s()
    if now_s < task.retry_after_s:
        return Progress.WAITING
    if task.static.lifecycles.may_start(task.static.event):
        return Progress.ADVANCED
    task.retry_after_s = now_s + task.services.settings.task.ready_back_off_s
    return Progress.WAITING


def build(task: Task) -> Progress:
    static = task.static
    entry, services = static.entry, task.services
    fn = services.resolve(entry.fn) if entry.fn is not None else None
    params = resolve_params({task.name: services.fn_params(task.name)}, entry)
    groupings = _groupings(task)
    conditions = compile_conditions(static.job, task.name, services.resolve)
    below = children_of(static.job, task.name)
    static.event.update(params=params, fn=fn)
    cooperative = True
    source = sink = None
    if task.kind is not Kind.FUNCTION:
        assert entry.plugin is not None, "validated: inputs and outputs name a plugin"
        context = plugin_context(task)
        if task.kind is Kind.INPUT:
            plugin = services.build_input(entry.plugin, context)
            times = source_times(task)
            source = Source(plugin, entry, services.clock, static.tracked, times, task.back_off)
            cooperative = plugin.cooperative
        else:
            output = services.build_output(entry.plugin, context)
            sink = Sink(output, entry.plugin)
            cooperative = output.cooperative
    if entry.cooperative is not None:
        cooperative = entry.cooperative
    static.event["cooperative"] = cooperative
    task.static = dataclasses.replace(
        static,
        fn=fn,
        params=params,
        groupings=groupings,
        conditions=conditions,
        own_conditions=_own_conditions(task, conditions, below),
        children=below,
        retries=conditions is not None and conditions.retries,
        source=source,
        sink=sink,
        sends_to=setup.sends_to(static.job, task.name),
        windowed=setup.compiled(static.job, task.name, services.resolve),
    )
    task.user_phases = user_code.user_phases(task.kind, task.static)
    task.successors = successors(task.kind, _nothing_to_do(task.static))
    return Progress.ADVANCED


def _nothing_to_do(static: Static) -> frozenset[Phase]:
    """Phases of the loop that are there for somebody this task does not have."""
    there_for = {
        Phase.AFTER_READ_BATCH: static.observed,
        Phase.AFTER_APPLY_FN: static.lifecycles.has("after_apply_fn"),
        Phase.ASSIGN_WINDOWS: static.windowed is not None,
    }
    return frozenset(phase for phase, somebody in there_for.items() if not somebody)


def before_task(task: Task) -> Progress:
    task.started = True
    task.static.lifecycles.merge("before_task_start", task.static.event)
    return Progress.ADVANCED


def _own_conditions(
    task: Task, conditions: Conditions | None, below: tuple[str, ...]
) -> Conditions | None:
    """Of a task whose segments go nowhere: outputs and reduce tasks."""
    if task.kind is not Kind.OUTPUT and task.static.entry.type != "reduce":
        return conditions
    return (conditions or everything_to(below)).of_exceptions()


def _groupings(task: Task) -> dict[str, Grouping]:
    job = task.static.job
    entries = [job.entry(child) for child in children(job.workflow)[task.name]]
    getters = [(entry, key_getter(entry, task.services.resolve)) for entry in entries]
    return {entry.name: Grouping(get, entry) for entry, get in getters if get is not None}
