"""LOAD_JOB to AWAIT_READY, before a driver drives: the job, and its part in a version."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

from onyx.ids import AllocationVersion
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.job import to_mapping
from onyx.plugins.context import context_of
from onyx.plugins.protocol import Output, PluginContext
from onyx.spark.compiler.refusals import is_unbounded
from onyx.spark.driver.counts import Counts
from onyx.spark.driver.driver import Driver
from onyx.spark.driver.leftovers import Leftovers
from onyx.spark.driver.outputs import Outputs
from onyx.spark.driver.request import QueryRequest
from onyx.spark.driver.states import States
from onyx.spark.middle.request import location_of_task
from onyx.spark.session.spark_master import spark_of_job
from onyx.state.opening import state_location
from onyx.task.driver.task import DriverRuntime, DriverTask, Membership
from onyx.task.joining import is_allocated, note_ready, registered_alone
from onyx.task.loading import load
from onyx.task.parts.assignment import Assignment
from onyx.task.parts.status import Status
from onyx.task.table import ADVANCED, WAITING, Answer


def load_job(task: DriverTask) -> Answer:
    """Read the job from the chunk store."""
    assignment = task.assignment
    job = load(assignment)
    if job is None:
        return WAITING
    metrics = assignment.services.metrics(assignment.job_id, job, assignment.task)
    task.runtime = DriverRuntime(assignment, _driver(assignment, job), metrics)
    task.job, task.metrics = job, metrics
    return ADVANCED


def take_wiring(task: DriverTask) -> Answer:
    """Join the newest version: a driver has no channels."""
    assignment = task.assignment
    if not is_allocated(assignment):
        return WAITING
    run = assignment.services.replica().run(assignment.job_id)
    task.membership = Membership(AllocationVersion(run.allocation_version))
    return ADVANCED


def register(runtime: DriverRuntime) -> Answer:
    """To the log the job is an input with one partition."""
    done = registered_alone(runtime.assignment, runtime.registration)
    return ADVANCED if done else WAITING


def await_ready(runtime: DriverRuntime, membership: Membership, status: Status) -> Answer:
    """Wait until the log says that all peers of the job are ready."""
    if not membership.ready:
        return WAITING
    note_ready(runtime.assignment, status)
    return ADVANCED


def _driver(assignment: Assignment, job: Job) -> Driver:
    services, job_id = assignment.services, assignment.job_id
    makers = {
        entry.name: partial(_made, assignment, job, entry)
        for entry in job.catalog
        if entry.type == "output"
    }
    middles = [
        location_of_task(_context(assignment, job, entry, ""))
        for entry in job.catalog
        if entry.spark_stage is not None
    ]
    incarnation = services.replica().groups_reverse_index[assignment.peer]
    tasks = [entry.name for entry in job.catalog]
    return Driver(
        job,
        job_id,
        services.log,
        _request(assignment, job),
        Outputs(makers, assignment.wanted),
        Leftovers(middles, incarnation),
        Counts(tasks, partial(services.metrics, job_id, job)),
        _states(assignment, job),
    )


def _states(assignment: Assignment, job: Job) -> States | None:
    if not job.windows or not is_unbounded(job):
        return None
    services = assignment.services
    store, location = services.state_store(durable=True), state_location(services.settings)
    return States(store, location, assignment.job_id, assignment.peer)


def _request(assignment: Assignment, job: Job) -> QueryRequest:
    services, settings = assignment.services, assignment.services.settings
    on = spark_of_job(job.spark, settings.spark_master)
    return QueryRequest(
        manifest=to_mapping(job),
        job_id=assignment.job_id,
        modules=settings.modules,
        incarnation=services.replica().groups_reverse_index[assignment.peer],
        attempt="",
        scratch="",
        fn_params={
            entry.name: list(found)
            for entry in job.catalog
            if (found := services.fn_params(entry.name))
        },
        data_dir=os.path.abspath(settings.data_dir),
        master=on.url,
        spark_conf=on.conf,
        endless=is_unbounded(job),
        stage_attempts_max=settings.task.seal_attempts_max,
        report_values=settings.task.report_values,
        state_group_access=settings.state.group_access,
    )


def _made(assignment: Assignment, job: Job, entry: CatalogEntry, writer: str) -> Output:
    """A plugin with which the driver publishes what the query has staged for an output."""
    assert entry.plugin is not None, "validated: outputs name a plugin"
    context = _context(assignment, job, entry, writer)
    return assignment.services.build_output(entry.plugin, context)


def _context(assignment: Assignment, job: Job, entry: CatalogEntry, writer: str) -> PluginContext:
    services = assignment.services
    return replace(
        context_of(
            job,
            entry,
            assignment.job_id,
            assignment.peer,
            services.replica().groups_reverse_index[assignment.peer],
            services.clock,
            services.resolve,
        ),
        permitted=services.permitted,
        wanted=assignment.wanted,
        data_dir=services.settings.data_dir,
        spark_master=services.settings.spark_master,
        writer=writer,
    )
