"""The driver of a job on Spark, made of the job and of what the process gives: what its query is
asked to run, as far as it is the same for every attempt, and the state that it keeps.
"""

from __future__ import annotations

import os
from functools import partial

from onyx.model.canonical import to_mapping
from onyx.model.job import Job
from onyx.model.workflow import is_unbounded, stateful_tasks
from onyx.rights import rights_of
from onyx.spark.driver.driver import Counts, Driver, Leftovers, States
from onyx.spark.driver.request import QueryRequest
from onyx.spark.middle.request import location_of_task
from onyx.spark.session.masters import spark_of_job
from onyx.state.location import state_location
from onyx.task.driver.carry_over import carry_over_query
from onyx.task.parts import Assignment
from onyx.task.plugin_context import context_of_driver, outputs_of


def build_driver(assignment: Assignment, job: Job) -> Driver:
    """The driver, before it has looked what is committed."""
    services, job_id = assignment.services, assignment.job_id
    middles = [
        location_of_task(context_of_driver(assignment, job_id, job, entry))
        for entry in job.catalog
        if entry.stage is not None
    ]
    incarnation = services.replica().groups_reverse_index[assignment.peer]
    tasks = [entry.name for entry in job.catalog if entry.type != "table"]
    request, states = query_request(assignment, job), states_of(assignment, job)
    return Driver(
        job,
        job_id,
        services.log,
        services.clock,
        request,
        outputs_of(assignment, job_id, job),
        Leftovers(middles, incarnation),
        Counts(tasks, partial(services.metrics, job_id, job)),
        states,
        carry_over=carry_over_query(assignment, job, request.spark_conf),
    )


def query_request(assignment: Assignment, job: Job) -> QueryRequest:
    """The request, without what is of one attempt."""
    services, settings = assignment.services, assignment.services.settings
    on = spark_of_job(job.spark, settings.spark_master, rights_of(settings))
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
        rights=rights_of(settings),
        data_dir=os.path.abspath(settings.data_dir),
        master=on.url,
        spark_conf=on.conf,
        endless=is_unbounded(job),
        stage_attempts_max=settings.task.seal_attempts_max,
        table_bytes_max=settings.task.table_bytes_max,
        report_values=settings.task.report_values,
        state_group_access=settings.state.group_access,
    )


def states_of(assignment: Assignment, job: Job) -> States | None:
    """The states of the tasks of a job; None if none is kept between two of its batches."""
    if not stateful_tasks(job) or not is_unbounded(job):
        return None
    services = assignment.services
    store, location = services.state_store(durable=True), state_location(services.settings)
    return States(store, location, assignment.job_id, assignment.peer)
