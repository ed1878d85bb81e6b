"""The driver of a job on Spark, built of the job and of the process that it is in."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from onyx.model.job import CatalogEntry, Job
from onyx.plugins.protocol import Output, PluginContext
from onyx.spark.driver.counts import Counts
from onyx.spark.driver.driver import Driver
from onyx.spark.driver.leftovers import Leftovers
from onyx.spark.driver.outputs import Outputs
from onyx.spark.middle.request import location_of_task
from onyx.task.driver.kept import states_of
from onyx.task.driver.request import query_request
from onyx.task.parts.assignment import Assignment
from onyx.task.plugin_context import context_in_process


def build_driver(assignment: Assignment, job: Job) -> Driver:
    """The driver, before it has looked what is committed."""
    services, job_id = assignment.services, assignment.job_id
    makers = {
        entry.name: partial(_made, assignment, job, entry)
        for entry in job.catalog
        if entry.type == "output"
    }
    middles = [
        location_of_task(_context(assignment, job, entry, ""))
        for entry in job.catalog
        if entry.stage is not None
    ]
    incarnation = services.replica().groups_reverse_index[assignment.peer]
    tasks = [entry.name for entry in job.catalog if entry.type != "table"]
    return Driver(
        job,
        job_id,
        services.log,
        query_request(assignment, job),
        Outputs(makers, assignment.wanted),
        Leftovers(middles, incarnation),
        Counts(tasks, partial(services.metrics, job_id, job)),
        states_of(assignment, job),
    )


def _made(assignment: Assignment, job: Job, entry: CatalogEntry, writer: str) -> Output:
    """A plugin with which the driver publishes what the query has staged for an output."""
    assert entry.plugin is not None, "validated: outputs name a plugin"
    context = _context(assignment, job, entry, writer)
    return assignment.services.build_output(entry.plugin, context)


def _context(assignment: Assignment, job: Job, entry: CatalogEntry, writer: str) -> PluginContext:
    services, job_id, peer = assignment.services, assignment.job_id, assignment.peer
    incarnation = services.replica().groups_reverse_index[peer]
    context = context_in_process(services, job, entry, job_id, peer, incarnation)
    return replace(context, wanted=assignment.wanted, writer=writer)
