"""The driver of a job on Spark, made of the job and of what the process gives."""

from __future__ import annotations

from functools import partial

from onyx.model.job import Job
from onyx.spark.driver.counts import Counts
from onyx.spark.driver.driver import Driver
from onyx.spark.driver.leftovers import Leftovers
from onyx.spark.middle.request import location_of_task
from onyx.task.driver.carry_over import carry_over_query
from onyx.task.driver.kept import states_of
from onyx.task.driver.request import query_request
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
        request,
        outputs_of(assignment, job_id, job),
        Leftovers(middles, incarnation),
        Counts(tasks, partial(services.metrics, job_id, job)),
        states,
        carry_over=carry_over_query(assignment, job, request.spark_conf),
    )
